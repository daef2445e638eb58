# SPDX-License-Identifier: Apache-2.0
"""LUKS encryption by the driver: keys, headers, rotation, unlock.

``policy`` decides how a volume is encrypted. ``activate`` opens a volume,
``devices`` keeps its crypt device as it must be, ``unlock`` opens volumes
after a boot. ``headers``, ``at_rest`` and ``header_backups`` look after
headers, ``rotate``, ``recovery_keys`` and ``reencrypt`` change their keys.
``front_end`` is for volumes that Nova encrypts. ``leftovers`` finds secrets
that no volume has.
"""
