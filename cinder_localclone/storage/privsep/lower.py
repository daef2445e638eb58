# SPDX-License-Identifier: Apache-2.0
"""Allowed lower devices of the driver's device-mapper devices.

A table names its lower devices, by number or by path. Each must be another
device of the driver, an LV of a backend's volume group, or the disk of an
iSCSI session with a target of the driver.
"""

import os
import re

from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import configuration
from cinder_localclone.storage.privsep import sysfs

#: Number of lower devices of each target.
_TARGETS = {'linear': 1, 'clone': 3, 'flakey': 1, 'error': 0}
_NUMBER = re.compile(r'\d+:\d+')
_SESSION = re.compile(r'/(session\d+)/')


def require(table: str) -> None:
    """Refuse a table with a foreign lower device.

    :raises Foreign: if a lower device is not the driver's, or the driver never
        uses a target of the table
    """
    segments = dm_tables.parse(table)
    privsep.require(
        segments and len(segments) == len(table.splitlines()), table)
    for segment in segments:
        privsep.require(_TARGETS.get(segment.target) == len(
            segment.uses()), table)
        for device in segment.uses():
            number = device if _NUMBER.fullmatch(device) else (
                sysfs.number(device))
            privsep.require(number and _is_own(number), device)


def _is_own(number: str) -> bool:
    name = sysfs.name_of(number)
    if name:
        return is_own_lv(number) or names.is_device(name) and (
            sysfs.uuid_of(number) == names.device_uuid(name))
    return iscsi.is_iqn(_target_of(number))


def is_own_lv(number: str) -> bool:
    """Return whether a device is an LV in a volume group of this driver."""
    name = sysfs.name_of(number)
    return sysfs.uuid_of(number).startswith('LVM-') and any(
        # A hyphen in the group's own name is doubled.
        name.startswith(group + '-') and not name.startswith(group + '--')
        for group in map(names.mapped_name, configuration.groups()))


def _target_of(number: str) -> str:
    """Return the iSCSI target of a disk, or ''."""
    found = _SESSION.search(os.path.realpath(sysfs.device_directory(number)))
    return sysfs.target_of_session(found.group(1)) if found else ''
