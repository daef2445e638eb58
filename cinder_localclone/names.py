# SPDX-License-Identifier: Apache-2.0
"""Every name the driver gives to anything, and the way back from a name.

Pure. Ids are Cinder's UUIDs, 36 characters; the longest name built here has
56, and device-mapper (127), LVM (127) and LIO (a path component) take more.
"""

import hashlib
import re

_UUID = r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
_HANDLE = re.compile('localclone-(%s)$' % _UUID)
_CLONE = re.compile('localclone-clone-(%s)$' % _UUID)
_METADATA = re.compile('localclone-meta-(%s)$' % _UUID)

#: LVM tag of a metadata LV whose first block was zeroed. dm-clone trusts
#: whatever it finds there, so this must happen once and never again.
METADATA_READY = 'localclone.ready'


def tags(**facts) -> list[str]:
    """Facts as LVM tags: ``localclone.<name>=<value>``.

    Values may have letters, digits and ``_+.-/=!:#&``.
    """
    return ['localclone.%s=%s' % fact for fact in facts.items()]


def facts(tags) -> dict[str, str]:
    """The facts in an LV's tags."""
    pairs = [tag.removeprefix('localclone.').partition('=') for tag in tags
             if tag.startswith('localclone.')]
    return {name: value for name, equals, value in pairs if equals}


def handle(volume_id: str) -> str:
    """The device-mapper name of a volume's handle, on every node the same."""
    return 'localclone-%s' % volume_id


def handle_path(volume_id: str) -> str:
    """The path given to Nova and os-brick: constant for a volume's life."""
    return '/dev/mapper/' + handle(volume_id)


def clone(shadow_id: str) -> str:
    """The device-mapper name of a move's clone, on its destination."""
    return 'localclone-clone-%s' % shadow_id


def clone_path(shadow_id: str) -> str:
    return '/dev/mapper/' + clone(shadow_id)


def metadata_lv(shadow_id: str) -> str:
    """The LV that remembers which regions of a move are local."""
    return 'localclone-meta-%s' % shadow_id


def lv_path(group: str, lv: str) -> str:
    return '/dev/%s/%s' % (group, lv)


def device_uuid(name: str) -> str:
    """The device-mapper UUID; its prefix keeps udev and LVM rules away."""
    return 'LOCALCLONE-' + name


def volume_of_handle(name: str) -> str | None:
    """The volume id in a handle's name; None if it is no handle."""
    found = _HANDLE.match(name)
    return found.group(1) if found else None


def shadow_of_clone(name: str) -> str | None:
    found = _CLONE.match(name)
    return found.group(1) if found else None


def shadow_of_metadata(name: str) -> str | None:
    found = _METADATA.match(name)
    return found.group(1) if found else None


def move_iqn(prefix: str, shadow_id: str) -> str:
    """The iSCSI name under which the source of a move is exported."""
    return '%slocalclone-%s' % (prefix, shadow_id)


def shadow_of_move_iqn(prefix: str, iqn: str) -> str | None:
    """The shadow id in the name of a move's export, if it is one."""
    found = re.match(re.escape(prefix) + 'localclone-(%s)$' % _UUID, iqn)
    return found.group(1) if found else None


def remote_iqn(prefix: str, volume_id: str, initiator: str) -> str:
    """The iSCSI name under which one initiator gets a volume remotely."""
    digest = hashlib.sha256(initiator.encode()).hexdigest()[:8]
    return '%svolume-%s-%s' % (prefix, volume_id, digest)


def volume_of_remote_iqn(prefix: str, iqn: str) -> str | None:
    found = re.match(
        re.escape(prefix) + 'volume-(%s)-[0-9a-f]{8}$' % _UUID, iqn)
    return found.group(1) if found else None


def backstore(device: str) -> str:
    """The name of the LIO storage object of a device, by its path."""
    return device.rpartition('/')[2]


def lock(host: str, volume_id: str) -> str:
    """The lock around work on one volume on one node.

    The host is part of it: with a coordination backend that spans nodes, a
    source that waits for its peer must not hold what the peer needs.
    """
    return 'localclone-%s-%s' % (host, volume_id)
