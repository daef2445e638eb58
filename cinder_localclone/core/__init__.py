# SPDX-License-Identifier: Apache-2.0
"""Values, formats, interfaces and errors, which all packages share.

Nothing here reads or writes anything, runs a command or asks a database, and
nothing here imports another package of the driver. :mod:`.core.interfaces`
says what a node's storage, database and peers can do; :mod:`.core.formats`
parses and builds the texts and bytes of LVM, device-mapper and LUKS.

``names``, ``state``, ``rows``, ``statuses``, ``attachments``, ``node``,
``exceptions`` and ``objects`` are imported everywhere. Facts that several
packages share have one owner: sets of Cinder's statuses ``statuses``, LVM
tags ``lvm_tags``, the columns of a move ``move_record``, what an error says
to operator and owner ``outcomes`` and the error's class. :mod:`nova <.nova>`
imports ``hosts`` only.
"""
