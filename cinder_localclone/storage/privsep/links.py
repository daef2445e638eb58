# SPDX-License-Identifier: Apache-2.0
"""The driver's own links in /dev/localclone.

os-brick's encryptors turn the path given to them to a device of their own, and
other programs may do so too. So a link is checked by the number of the device
to which it leads, not by its text.
"""

import contextlib
import os

from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import sysfs


@privsep.entrypoint
def ensure(volume_id: str, device: str) -> bool:
    """Make the path of a volume lead to its handle or header guard.

    Allows: turns the link of any volume in /dev/localclone to that volume's
    own handle or guard.

    :param device: name of the device
    :returns: False if it did already
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
    os.rename(new, path)  # the path exists at every moment
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
    """Return the names of the devices at all paths, by volume id.

    Allows: lists the links in /dev/localclone.

    :returns: '' for a path to no device-mapper device, or to a removed device
    """
    try:
        found = os.listdir(names.LINKS)
    except FileNotFoundError:
        return {}
    return {volume_id: sysfs.mapped_name(names.link(volume_id))
            if os.path.islink(names.link(volume_id)) else ''
            for volume_id in found
            if names.is_id(volume_id)}
