# SPDX-License-Identifier: Apache-2.0
"""The driver's own device-mapper devices, of whichever kind."""

from collections.abc import Collection
from collections.abc import Mapping

from oslo_utils import units

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core import names
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import dmsetup

#: How much of a new device is read before it is given out, in bytes. Nova
#: formats a LUKS volume whose header it can't read.
HEAD = units.Mi


def own(timeout: float, only: Collection[str] | None = None
        ) -> dict[str, dm_tables.Device]:
    """Return the driver's own device-mapper devices, by name.

    :param timeout: seconds
    :param only: those of these names, as far as they are there
    """
    return dm_tables.own_devices(
        (dm_ioctl.Status(*each) for each in dmsetup.survey(
            timeout, None if only is None else [*only])),
        names.device_uuid(''))


def put(present: Mapping[str, dm_tables.Device], name: str, table: str,
        timeout: float, disk: tuple[str, str] | None = None) -> None:
    """Give a device a table, whether it exists or not.

    :param present: the devices that exist, by name
    :param timeout: seconds
    :param disk: in the table, see :func:`.dmsetup.create`
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
    """Check that a path leads to the disk that the clone of a move reads.

    That disk was verified. The clone has it open, so its number stays.

    :param clone: None if there is none
    :returns: the disk's number
    :raises WrongDevice: if the path leads to another one
    """
    number = block.number(disk)
    if not (number and clone and clone.uses()[2:] == (number,)):
        raise exceptions.WrongDevice(path=disk, found=number or 'nothing')
    return number
