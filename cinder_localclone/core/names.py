# SPDX-License-Identifier: Apache-2.0
"""Every name the driver gives to anything, and the way back from a name.

Pure. Ids are Cinder's UUIDs, 36 characters; the longest name built here has
56, and device-mapper (127), LVM (127) and LIO (a path component) take more.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import hashlib
import re
import typing

from cinder_localclone.core import lvm_tags

_Found = typing.TypeVar('_Found')

#: What ids look like.
UUID = r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
_HANDLE = re.compile('localclone-(%s)' % UUID)
_CLONE = re.compile('localclone-clone-(%s)' % UUID)
_SOURCE = re.compile('localclone-source-(%s)' % UUID)
_METADATA = re.compile('localclone-meta-(%s)' % UUID)
_CRYPT = re.compile('localclone-crypt-(%s)' % UUID)
_INTEGRITY = re.compile('localclone-crypt-(%s)_dif' % UUID)
_GUARD = re.compile('localclone-guard-(%s)' % UUID)
_SERVED = re.compile('localclone-export-(%s)' % UUID)
_TO_WIPE = re.compile('localclone-wipe-([0-9a-f]{8})-[0-9a-f]{12}')
_DEVICE = re.compile(
    'localclone-(clone-|source-|absent-|guard-|served-)?%s' % UUID)

#: LVM tags that are flags. :mod:`.lvm_tags` says what each means, and who
#: sets it.
UNCOMMITTED = lvm_tags.UNCOMMITTED.text
DEFERRED = lvm_tags.DEFERRED.text
SWAPPING = lvm_tags.SWAPPING.text
UNMAPPED = lvm_tags.UNMAPPED.text
AWAY = lvm_tags.AWAY.text
DELETING = lvm_tags.DELETING.text
LACKING = lvm_tags.LACKING.text
ACCEPTED = lvm_tags.ACCEPTED.text
OPENED = lvm_tags.OPENED.text
FRESH = lvm_tags.FRESH.text
OUTDATED = lvm_tags.OUTDATED.text
REENCRYPTED = lvm_tags.REENCRYPTED.text
PAUSED = lvm_tags.PAUSED.text
#: Facts: see there, too.
ZONE: lvm_tags.Fact = 'zone'
GUARDED: lvm_tags.Fact = 'guarded'
WAS: lvm_tags.Fact = 'was'
#: Where the paths are that Nova gets of volumes that it encrypts.
LINKS = '/dev/localclone'


def tags(**facts: object) -> list[str]:
    """Facts as LVM tags: ``localclone.<name>=<value>``.

    :raises KeyError: if :mod:`.lvm_tags` has no such fact
    """
    return [lvm_tags.FACTS[name].of(value) for name, value in facts.items()]


def with_fact(tags: Iterable[str], fact: lvm_tags.Fact) -> set[str]:
    """Those of an LV's tags that say a fact, whatever its value.

    :raises KeyError: if :mod:`.lvm_tags` has no such fact
    """
    begin = lvm_tags.FACTS[fact].of('')
    return {tag for tag in tags if tag.startswith(begin)}


def volume_tags(volume_id: str, extra_bytes: int) -> list[str]:
    """The tags of a volume's LV: what a boot needs to know of it.

    :param extra_bytes: by how much its body is longer than the volume
    """
    return tags(volume=volume_id) + (
        tags(extra=extra_bytes) if extra_bytes else [])


def shown(size_bytes: int) -> str:
    """The tag of a thick LV of which no more may be seen yet."""
    return tags(shown=size_bytes)[0]


def given(size_bytes: int) -> str:
    """Return the tag of an LV that is longer than what its users have seen.

    An extension sets it before it extends the LV, and takes it off when all
    nodes are ready for the new length. It stays where extents are so large
    that LVM rounds up by a GiB or more. A boot gives out no more than it says.
    """
    return tags(given=size_bytes)[0]


def zone_tag(mib: int | str) -> str:
    """Return the tag that says how much is re-encrypted at a time."""
    return tags(**{ZONE: mib})[0]


def guard_tag(header: int) -> str:
    """Return the tag of an LV whose volume has a guard, also after a boot.

    :param header: sectors of the volume's header
    """
    return tags(**{GUARDED: header})[0]


def facts(tags: Iterable[str]) -> dict[lvm_tags.Fact, str]:
    """The facts in an LV's tags."""
    pairs = [tag.removeprefix(lvm_tags.PREFIX).partition('=') for tag in tags
             if tag.startswith(lvm_tags.PREFIX)]
    return {typing.cast(lvm_tags.Fact, name): value
            for name, equals, value in pairs
            if equals and name in lvm_tags.FACTS}


def guarded(tags: Iterable[str]) -> int:
    """How many sectors of a volume are guarded, by its LV's tags; 0: none."""
    value = facts(tags).get(GUARDED, '')
    return int(value) if value.isdecimal() else 0


def own_tags(tags: Iterable[str]) -> list[str]:
    """Those of an LV's tags that make it one of the driver's.

    How much of a thick one may be seen stays true without the driver.
    """
    return sorted(tag for tag in tags if tag.startswith(lvm_tags.PREFIX)
                  and not tag.startswith(lvm_tags.SHOWN.of('')))


def uncommitted(host: str) -> list[str]:
    """The tags of an LV that the backend of a service makes for somebody."""
    return tags(backend=_short(backend_of(host))) + [UNCOMMITTED]


def node_digest(host: str) -> str:
    """Return the value of the fact that says which node has a snapshot."""
    return _short(host)


def on(host: str) -> str:
    """Return the tag of a snapshot's LV that says which node has it.

    :param host: its service host, as the snapshot's row says
    """
    return tags(on=node_digest(host))[0]


def handle(volume_id: str) -> str:
    """The device-mapper name of a volume's handle, on every node the same."""
    return 'localclone-%s' % volume_id


def handle_path(volume_id: str) -> str:
    """The path given to Nova and os-brick: constant for a volume's life."""
    return '/dev/mapper/' + handle(volume_id)


def clone(move_id: str) -> str:
    """The device-mapper name of a move's clone, on its destination."""
    return 'localclone-clone-%s' % move_id


def clone_path(move_id: str) -> str:
    """The device of a move's clone."""
    return '/dev/mapper/' + clone(move_id)


def source(move_id: str) -> str:
    """The device that the source of a move serves, which can only be read."""
    return 'localclone-source-%s' % move_id


def source_path(move_id: str) -> str:
    """The path of a move's source device, on its source."""
    return '/dev/mapper/' + source(move_id)


def absent_source(move_id: str) -> str:
    """The device that stands for a move's source which cannot be reached."""
    return 'localclone-absent-%s' % move_id


def crypt(volume_id: str) -> str:
    """The device that decrypts a volume, above its handle."""
    return 'localclone-crypt-%s' % volume_id


def crypt_path(volume_id: str) -> str:
    """The path given to Nova of a volume that the driver encrypts.

    Constant for the volume's life, on every node the same.
    """
    return '/dev/mapper/' + crypt(volume_id)


def integrity(volume_id: str) -> str:
    """The device with the tags of an authenticated volume: dm-integrity.

    It is between the volume's handle and what decrypts it. cryptsetup makes
    it, and calls it so.
    """
    return crypt(volume_id) + '_dif'


def volume_of_integrity(name: str, uuid: str) -> str | None:
    """The volume id in the name of such a device.

    :param uuid: its device-mapper UUID; since 2.8 cryptsetup calls it a
        part of another device
    :returns: None if it is no such device, or another's
    """
    volume_id = _id_in(_INTEGRITY, name)
    own = re.fullmatch('CRYPT-(INTEGRITY|SUBDEV)-[0-9a-f]{32}-'
                       + re.escape(name), uuid)
    return volume_id if own else None


def is_integrity(name: str) -> bool:
    """Whether a device of this name can be such a one."""
    return bool(_INTEGRITY.fullmatch(name))


def volume_of_crypt(name: str, uuid: str) -> str | None:
    """The volume id in the name of what decrypts a volume.

    :param uuid: its device-mapper UUID, which cryptsetup makes
    :returns: None if it is no such device, or another's
    """
    volume_id = _id_in(_CRYPT, name)
    own = re.fullmatch('CRYPT-LUKS[12]-[0-9a-f]{32}-' + re.escape(name), uuid)
    return volume_id if own else None


def volume_of_crypt_name(name: str) -> str | None:
    """The same of a name alone: others may have given it."""
    return _id_in(_CRYPT, name)


def guard(volume_id: str) -> str:
    """The device that keeps a volume's header as it is, above its handle."""
    return 'localclone-guard-%s' % volume_id


def guard_path(volume_id: str) -> str:
    """The device of a volume's guard."""
    return '/dev/mapper/' + guard(volume_id)


def export_device(volume_id: str) -> str:
    """The device that other nodes are served of a volume with a top."""
    return 'localclone-export-%s' % volume_id


def export_device_path(volume_id: str) -> str:
    """The path of that, on the volume's home."""
    return '/dev/mapper/' + export_device(volume_id)


def volume_of_export_device(name: str) -> str | None:
    """The volume id in the name of such a device; None if it is none."""
    return _id_in(_SERVED, name)


def volume_of_guard(name: str) -> str | None:
    """The volume id in a guard's name; None if it is no guard."""
    return _id_in(_GUARD, name)


def link(volume_id: str) -> str:
    """The path given to Nova of a volume that Nova encrypts.

    Constant for the volume's life, on every node the same. Its last part is
    no device's name: os-brick's encryptors would take a device of that name
    for their own, and remove it.
    """
    return '%s/%s' % (LINKS, volume_id)


def is_crypt(name: str) -> bool:
    """Whether a device of this name can be what decrypts a volume."""
    return bool(_CRYPT.fullmatch(name))


def is_id(text: str) -> bool:
    """Whether a text is an id, and so can be part of a path."""
    return bool(re.fullmatch(UUID, text))


def header_backup(volume_id: str, what: str) -> str:
    """The file name of a backup of the header of a volume.

    Never by the header's LUKS UUID: whoever can write the disk chooses that.

    :param what: a number, or why it was made
    """
    return '%s-%s' % (volume_id, what)


def is_header_backup(name: str) -> bool:
    """Whether a file of this name is one, or was to be one."""
    return bool(re.fullmatch(UUID + r'-[0-9a-z-]+(\.partial)?', name))


def secret(volume_id: str) -> str:
    """What the key of a volume is called in the key manager."""
    return 'localclone volume ' + volume_id


def is_secret(name: str) -> bool:
    """Whether a secret of this name is the driver's own."""
    return bool(re.fullmatch(secret(UUID), name))


def reencryption_unit(volume_id: str) -> str:
    """The systemd unit in which a volume is being re-encrypted."""
    return 'localclone-reencrypt-%s.service' % volume_id


def metadata_lv(move_id: str) -> str:
    """The LV that remembers which regions of a move are local."""
    return 'localclone-meta-%s' % move_id


def to_wipe(host: str, new_id: str) -> str:
    """The LV that was a volume's, and goes when it is overwritten.

    :param host: of the service that does that: another backend in the same
        volume group may overwrite less
    :param new_id: 12 hexadecimal digits, new: no volume ever has this name
    """
    return 'localclone-wipe-%s-%s' % (_short(backend_of(host)), new_id)


def is_to_wipe(name: str, host: str = '') -> bool:
    """Whether an LV of this name is no volume's any more.

    :param host: of the service that would overwrite it; '': any
    """
    match = _TO_WIPE.fullmatch(name)
    return match is not None and (
        not host or match.group(1) == _short(backend_of(host)))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def snapshot_lv(snapshot_id: str) -> str:
    """The LV of a snapshot. ("snapshot..." is reserved by LVM.)"""
    return '_snapshot-%s' % snapshot_id


def ids_in(name: str) -> list[str]:
    """Return the ids in an LV's name, in their order.

    Cinder's volume_name_template may have anything before and after the id.
    """
    return re.findall(UUID, name)


def find_by_id(found: Mapping[str, _Found], name: str) -> _Found | None:
    """Return the entry whose key is an id in an LV's name, if there is one."""
    return next((found[key] for key in ids_in(name) if key in found), None)


def check_template(template: str) -> None:
    """Check that a volume_name_template makes LV names of volumes' ids.

    LV names are told apart by the ids in them.

    :raises ValueError: if it does not; the message says why
    """
    sample = '01234567-89ab-4cde-8f01-23456789abcd'
    try:
        name = template % sample
    except (TypeError, ValueError, KeyError) as exc:
        raise ValueError('volume_name_template %r can\'t be filled in: %s'
                         % (template, exc))
    if ids_in(name) != [sample]:
        raise ValueError(
            'volume_name_template %r must have the id of a volume in it, '
            'once and whole: %%s' % template)
    if not re.fullmatch('[A-Za-z0-9+_.][A-Za-z0-9+_.-]{,126}', name):
        raise ValueError('LVM takes no LV named by volume_name_template %r'
                         % template)
    if name == snapshot_lv(sample) or name.startswith('localclone-'):
        raise ValueError('volume_name_template %r makes names that the '
                         'driver uses for other LVs' % template)


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


def move_of_clone(name: str) -> str | None:
    """The shadow id in a clone's name; None if it is no clone."""
    return _id_in(_CLONE, name)


def move_of_source(name: str) -> str | None:
    """The shadow id in a source device's name; None if it is no such one."""
    return _id_in(_SOURCE, name)


def move_of_metadata(name: str) -> str | None:
    """The shadow id in a metadata LV's name; None if it is no such LV."""
    return _id_in(_METADATA, name)


def _id_in(pattern: re.Pattern[str], name: str) -> str | None:
    match = pattern.fullmatch(name)
    return match.group(1) if match else None


def is_device(name: str) -> bool:
    """Whether a device-mapper device of this name can be the driver's own."""
    return bool(_DEVICE.fullmatch(name))


def service_host(host: str | None) -> str:
    """A host without its pool: "n1@lc" of "n1@lc#pool".

    As ``extract_host`` (cinder/volume/volume_utils.py), which is slow to
    import, and refuses a volume that has no host yet: this returns ''.
    """
    return (host or '').partition('#')[0]


def backend_of(host: str | None) -> str:
    """The backend in a host, with or without its pool."""
    return service_host(host).partition('@')[2]


def same_backend(host: str, other: str) -> bool:
    """Whether two service hosts are nodes of one backend section."""
    return backend_of(host) == backend_of(other)


def backstore(device: str) -> str:
    """The name of the LIO storage object of a device, by its path.

    All that is served of a volume shares one.
    """
    name = device.rpartition('/')[2]
    volume_id = volume_of_export_device(name)
    return handle(volume_id) if volume_id else name


def is_backstore(name: str) -> bool:
    """Whether a storage object of this name can be the driver's own."""
    return bool(_HANDLE.fullmatch(name) or _SOURCE.fullmatch(name))


def lock(host: str, volume_id: str) -> str:
    """The lock around work on one volume on one node.

    The host is part of it: with a coordination backend that spans nodes, a
    source that waits for its peer must not hold what the peer needs.
    """
    return 'localclone-%s-%s' % (host, volume_id)
