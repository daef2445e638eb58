# SPDX-License-Identifier: Apache-2.0
"""The driver's own device-mapper devices, of every kind."""

from collections.abc import Collection
from collections.abc import Mapping

from oslo_utils import units

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dmsetup

#: Bytes read from a new device before it is given out. Nova formats a LUKS
#: volume if it can't read the header.
HEAD = units.Mi


def own_devices(timeout: float, only: Collection[str] | None = None
                ) -> dict[str, dm_tables.Device]:
    """Return the driver's own device-mapper devices, by name.

    :param timeout: seconds
    :param only: names to look up; names without a device are left out. None:
        all devices
    """
    return dm_tables.own_devices(
        (dm_ioctl.Status(*each) for each in dmsetup.survey(
            timeout, None if only is None else [*only])),
        names.device_uuid(''))


def create_or_reload(present: Mapping[str, dm_tables.Device], name: str,
                     table: str,
                     timeout: float, disk: tuple[str, str] | None = None
                     ) -> None:
    """Create a device with a table, or give the table to an existing device.

    :param present: existing devices, by name
    :param timeout: seconds
    :param disk: SCSI disk in the table, see :func:`.dmsetup.create`
    """
    if name in present:
        dmsetup.swap_table(name, table, timeout, *[disk] * bool(disk))
    else:
        create(name, table, timeout, disk)
    dmsetup.ensure_devnode(name)


def create(name: str, table: str, timeout: float,
           disk: tuple[str, str] | None = None) -> None:
    """Create a device; see :func:`.dmsetup.create`."""
    how = name, names.device_uuid(name), table, timeout
    if disk:
        dmsetup.create(*how, False, disk)
    else:
        dmsetup.create(*how)


def check_source(clone: dm_tables.Device | None, disk: str) -> str:
    """Check the path of a disk against the clone of a move.

    The clone has its source disk open, so the disk keeps its number. The disk
    was verified when the clone was created.

    :param clone: None if there is none
    :returns: the disk's number
    :raises WrongDevice: if the path leads to another disk than the clone's
    """
    number = block.number(disk)
    if not (number and clone and clone.uses()[2:] == (number,)):
        raise exceptions.WrongDevice(path=disk, found=number or 'nothing')
    return number
