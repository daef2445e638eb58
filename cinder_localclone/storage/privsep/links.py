# SPDX-License-Identifier: Apache-2.0
"""The paths in /dev/localclone, which are links of the driver's own.

os-brick's encryptors turn the path that they are given to a device of their
own, and so may whoever else: a link is checked by the number of the device
that it leads to, whatever it says.
"""

import contextlib
import os

from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import sysfs


@privsep.entrypoint
def ensure(volume_id: str, device: str) -> bool:
    """See that the path of a volume leads to a device of the driver's.

    Allows: turns the link of any volume in /dev/localclone to that volume's
    own handle or guard.

    :param device: its name
    :returns: False if it did
    """
    privsep.require(names.is_id(volume_id), volume_id)
    privsep.require(
        device in (names.handle(volume_id), names.guard(volume_id)), device)
    path = names.link(volume_id)
    if os.path.islink(path) and sysfs.mapped_name(path) == device:
        return False
    os.makedirs(names.LINKS, mode=0o755, exist_ok=True)
    new = '%s/.%s.new' % (names.LINKS, volume_id)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    os.symlink('../mapper/' + device, new)
    os.rename(new, path)  # nobody ever finds none
    return True


@privsep.entrypoint
def remove(volume_id: str) -> bool:
    """Remove the path of a volume.

    Allows: removes the link of any volume in /dev/localclone.

    :returns: False if there is none
    """
    privsep.require(names.is_id(volume_id), volume_id)
    try:
        os.unlink(names.link(volume_id))
    except FileNotFoundError:
        return False
    return True


@privsep.entrypoint
def targets() -> dict[str, str]:
    """The names of the devices that all paths lead to, by volume id.

    Allows: lists the links in /dev/localclone.

    '' is that of what is no device of device-mapper, or gone.
    """
    try:
        found = os.listdir(names.LINKS)
    except FileNotFoundError:
        return {}
    return {volume_id: sysfs.mapped_name(names.link(volume_id))
            if os.path.islink(names.link(volume_id)) else ''
            for volume_id in found
            if names.is_id(volume_id)}
