# SPDX-License-Identifier: Apache-2.0
"""Every name the driver gives to anything, and the way back from a name.

Pure. Ids are Cinder's UUIDs, 36 characters; the longest name built here has
56, and device-mapper (127), LVM (127) and LIO (a path component) take more.
"""

from collections.abc import Iterable
import hashlib
import re

#: What ids look like.
UUID = r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
_HANDLE = re.compile('localclone-(%s)' % UUID)
_CLONE = re.compile('localclone-clone-(%s)' % UUID)
_SOURCE = re.compile('localclone-source-(%s)' % UUID)
_METADATA = re.compile('localclone-meta-(%s)' % UUID)
_DEVICE = re.compile('localclone-(clone-|source-|absent-)?%s' % UUID)
_EXPORT = re.compile(
    r'\S*(localclone-%s|volume-%s-[0-9a-f]{8}|pass-%s(-[0-9a-f]{8}){2})' % (
        UUID, UUID, UUID))
_PASS = re.compile(r'\S*pass-(%s)-([0-9a-f]{8})-[0-9a-f]{8}' % UUID)

#: LVM tag of a metadata LV whose first block was zeroed. dm-clone trusts
#: whatever it finds there, so this must happen once and never again.
METADATA_READY = 'localclone.ready'
#: LVM tag of a volume's LV that was made of an image, until Cinder has taken
#: the volume: before that nobody was given it.
NEWBORN = 'localclone.newborn'
#: LVM tag of a metadata LV whose volume is used through its old home, until
#: the move is committed: before that nothing may be written to its clone.
FOLLOWS = 'localclone.follows'
#: LVM tag of the same LV afterwards, until the handle is on the clone and what
#: was written at the old home is stable there.
SWAPPING = 'localclone.swapping'
#: LVM tag of a metadata LV as long as it is not known what was never written
#: of its source: a guest used that when the clone was built.
UNMAPPED = 'localclone.unmapped'
#: LVM tag of what a node has left of a volume that it passes through to its
#: home: a boot must not give that out instead.
AWAY = 'localclone.away'
#: The fact that says what an LV was called before it was managed.
WAS = 'was'


def tags(**facts: object) -> list[str]:
    """Facts as LVM tags: ``localclone.<name>=<value>``.

    Values may have letters, digits and ``_+.-/=!:#&``.
    """
    return ['localclone.%s=%s' % fact for fact in facts.items()]


def shown(size_bytes: int) -> str:
    """The tag of a thick LV of which no more may be seen yet."""
    return tags(shown=size_bytes)[0]


def facts(tags: Iterable[str]) -> dict[str, str]:
    """The facts in an LV's tags."""
    pairs = [tag.removeprefix('localclone.').partition('=') for tag in tags
             if tag.startswith('localclone.')]
    return {name: value for name, equals, value in pairs if equals}


def own_tags(tags: Iterable[str]) -> list[str]:
    """Those of an LV's tags that make it one of the driver's.

    How much of a thick one may be seen stays true without the driver.
    """
    return sorted(tag for tag in tags if tag.startswith('localclone.')
                  and not tag.startswith('localclone.shown='))


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
    """The device of a move's clone."""
    return '/dev/mapper/' + clone(shadow_id)


def source(shadow_id: str) -> str:
    """The device that the source of a move serves, which can only be read."""
    return 'localclone-source-%s' % shadow_id


def source_path(shadow_id: str) -> str:
    """The path of a move's source device, on its source."""
    return '/dev/mapper/' + source(shadow_id)


def absent_source(shadow_id: str) -> str:
    """The device that stands for a move's source which cannot be reached."""
    return 'localclone-absent-%s' % shadow_id


def metadata_lv(shadow_id: str) -> str:
    """The LV that remembers which regions of a move are local."""
    return 'localclone-meta-%s' % shadow_id


def snapshot_lv(snapshot_id: str) -> str:
    """The LV of a snapshot. ("snapshot..." is reserved by LVM.)"""
    return '_snapshot-%s' % snapshot_id


def lv_path(group: str, lv: str) -> str:
    """The device of an LV while it is active."""
    return '/dev/%s/%s' % (group, lv)


def mapped(*parts: str) -> str:
    """The device-mapper name that LVM gives to an LV, or a part of one.

    :param parts: group, LV, and what of it
    """
    return '-'.join(part.replace('-', '--') for part in parts)


def device_uuid(name: str) -> str:
    """The device-mapper UUID; its prefix keeps udev and LVM rules away."""
    return 'LOCALCLONE-' + name


def volume_of_handle(name: str) -> str | None:
    """The volume id in a handle's name; None if it is no handle."""
    return _id_in(_HANDLE, name)


def shadow_of_clone(name: str) -> str | None:
    """The shadow id in a clone's name; None if it is no clone."""
    return _id_in(_CLONE, name)


def shadow_of_source(name: str) -> str | None:
    """The shadow id in a source device's name; None if it is no such one."""
    return _id_in(_SOURCE, name)


def shadow_of_metadata(name: str) -> str | None:
    """The shadow id in a metadata LV's name; None if it is no such LV."""
    return _id_in(_METADATA, name)


def _id_in(pattern: re.Pattern[str], name: str) -> str | None:
    match = pattern.fullmatch(name)
    return match.group(1) if match else None


def move_iqn(prefix: str, shadow_id: str) -> str:
    """The iSCSI name under which the source of a move is exported."""
    return '%slocalclone-%s' % (prefix, shadow_id)


def shadow_of_move_iqn(prefix: str, iqn: str) -> str | None:
    """The shadow id in the name of a move's export, if it is one."""
    return _id_in(
        re.compile(re.escape(prefix) + 'localclone-(%s)' % UUID), iqn)


def remote_iqn(prefix: str, volume_id: str, initiator: str) -> str:
    """The iSCSI name under which one initiator gets a volume remotely."""
    return '%svolume-%s-%s' % (prefix, volume_id, _digest(initiator))


def pass_iqn(prefix: str, volume_id: str, initiator: str, home: str) -> str:
    """The iSCSI name under which a node gets a volume to pass it through.

    Another than that of a remote export: what a node's volume service and
    os-brick log in to, and out of, stays apart. So does what different homes
    serve, one after the other, and what belongs to different backends.

    :param home: service host of the node that serves it
    """
    return '%spass-%s-%s-%s' % (
        prefix, volume_id, _digest(backend_of(home)),
        _digest('%s %s' % (initiator, home)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def volume_of_remote_iqn(prefix: str, iqn: str) -> str | None:
    """The volume id in the name of a remote export, if it is one.

    What is passed through is remote as well.
    """
    return _id_in(re.compile(
        re.escape(prefix) + '(?:volume|pass)-(%s)(?:-[0-9a-f]{8})+' % UUID),
        iqn)


def volume_of_pass_iqn(iqn: str, host: str) -> str | None:
    """The volume id in the name of what is passed through, by any prefix.

    :param host: a service host of the backend; None is that of another
    """
    match = _PASS.fullmatch(iqn)
    return match.group(1) if match and match.group(2) == _digest(
        backend_of(host)) else None


def is_device(name: str) -> bool:
    """Whether a device-mapper device of this name can be the driver's own."""
    return bool(_DEVICE.fullmatch(name))


def is_iqn(iqn: str) -> bool:
    """Whether a target of this name can be the driver's own, by any prefix."""
    return bool(_EXPORT.fullmatch(iqn))


def backend_of(host: str | None) -> str:
    """The backend in a host, with or without its pool."""
    return (host or '').partition('#')[0].partition('@')[2]


def same_backend(host: str, other: str) -> bool:
    """Whether two service hosts are nodes of one backend section."""
    return backend_of(host) == backend_of(other)


def backstore(device: str) -> str:
    """The name of the LIO storage object of a device, by its path."""
    return device.rpartition('/')[2]


def is_backstore(name: str) -> bool:
    """Whether a storage object of this name can be the driver's own."""
    return bool(_HANDLE.fullmatch(name) or _SOURCE.fullmatch(name))


def lock(host: str, volume_id: str) -> str:
    """The lock around work on one volume on one node.

    The host is part of it: with a coordination backend that spans nodes, a
    source that waits for its peer must not hold what the peer needs.
    """
    return 'localclone-%s-%s' % (host, volume_id)
