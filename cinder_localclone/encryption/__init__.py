# SPDX-License-Identifier: Apache-2.0
"""LUKS encryption by the driver: keys, headers, rotation, re-encryption.

Others may import six modules:

- ``policy``: how a volume is encrypted, and how its keys end.
- ``devices``: the upper device of one volume; re-encryption beside it.
- ``boot_notes``: notes by which a boot opens volumes without the database.
- ``rotate``: another key for a volume.
- ``upkeep``: all volumes of a node: unlock after a boot, and sweeps.
- ``operator``: recovery keys, restored headers, leftovers.

Private: ``activate`` opens a volume; ``headers``, ``at_rest``,
``header_backups``, ``reencrypt`` and ``rotation_plan``.
"""
