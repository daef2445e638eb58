# SPDX-License-Identifier: Apache-2.0
"""Values, formats, interfaces and errors, shared by all packages.

Modules here read and write nothing, run no command, ask no database, and
import no other package of the driver. :mod:`.core.interfaces` describes the
operations of a node's storage, database and peers. :mod:`.core.formats` parses
and builds the texts and bytes of LVM, device-mapper and LUKS.

``names``, ``state``, ``volume``, ``statuses``, ``attachments``, ``node``,
``exceptions`` and ``objects`` are imported everywhere. Each shared fact has
one owner: sets of Cinder's statuses ``statuses``, LVM tags ``lvm_tags``, the
columns of a volume ``volume``, those of a move ``move_record``, the texts for
operators ``outcomes`` and the classes of the errors, the texts for members of
projects ``user_messages``.
:mod:`nova <.nova>` imports ``hosts`` only.
"""
