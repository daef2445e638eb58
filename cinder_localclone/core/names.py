# SPDX-License-Identifier: Apache-2.0
"""Every name of a device, LV, tag or lock, and the way back from a name.

Pure. Ids are Cinder's UUIDs, 36 characters. The longest name built here has 56
characters. The limits of device-mapper (127), LVM (127) and LIO (a path
component) are higher.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import hashlib
import re
import typing

from cinder_localclone.core import lvm_tags

_Found = typing.TypeVar('_Found')

#: The form of ids.
UUID = r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
_HANDLE = re.compile('localclone-(%s)' % UUID)
_CLONE = re.compile('localclone-clone-(%s)' % UUID)
_SOURCE = re.compile('localclone-source-(%s)' % UUID)
_METADATA = re.compile('localclone-meta-(%s)' % UUID)
_CRYPT = re.compile('localclone-crypt-(%s)' % UUID)
_INTEGRITY = re.compile('localclone-crypt-(%s)_dif' % UUID)
_GUARD = re.compile('localclone-guard-(%s)' % UUID)
_EXPORT_DEVICE = re.compile('localclone-export-(%s)' % UUID)
_TO_WIPE = re.compile('localclone-wipe-([0-9a-f]{8})-[0-9a-f]{12}')
_DEVICE = re.compile(
    'localclone-(clone-|source-|absent-|guard-|export-)?%s' % UUID)

#: LVM tags without a value. :mod:`.lvm_tags` has the meaning of each.
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
#: Facts, also in :mod:`.lvm_tags`.
ZONE: lvm_tags.Fact = 'zone'
GUARDED: lvm_tags.Fact = 'guarded'
WAS: lvm_tags.Fact = 'was'
#: The directory of Nova's paths to volumes that Nova encrypts.
LINKS = '/dev/localclone'


def tags(**facts: object) -> list[str]:
    """Return facts as LVM tags: ``localclone.<name>=<value>``.

    :raises KeyError: if :mod:`.lvm_tags` has no such fact
    """
    return [lvm_tags.FACTS[name].with_value(value) for name,
            value in facts.items()]


def with_fact(tags: Iterable[str], fact: lvm_tags.Fact) -> set[str]:
    """Return the tags of an LV with a fact, with any value.

    :raises KeyError: if :mod:`.lvm_tags` has no such fact
    """
    begin = lvm_tags.FACTS[fact].with_value('')
    return {tag for tag in tags if tag.startswith(begin)}


def volume_tags(volume_id: str, extra_bytes: int) -> list[str]:
    """Return the tags of a volume's LV, as a boot needs them.

    :param extra_bytes: length of its backing device beyond the volume's size
    """
    return tags(volume=volume_id) + (
        tags(extra=extra_bytes) if extra_bytes else [])


def shown(size_bytes: int) -> str:
    """Return the tag of a thick LV zeroed up to a length only.

    :param size_bytes: bytes that users may read
    """
    return tags(shown=size_bytes)[0]


def given(size_bytes: int) -> str:
    """Return the tag of an LV longer than its users have seen.

    An extension sets it before it extends the LV, and takes it off when all
    nodes are ready for the new length. It stays where extents are so large
    that LVM rounds up by a GiB or more. A boot makes a handle of this length
    at most.

    :param size_bytes: bytes that users have seen
    """
    return tags(given=size_bytes)[0]


def zone_tag(mib: int | str) -> str:
    """Return the tag with the re-encryption zone's size.

    :param mib: MiB re-encrypted at a time
    """
    return tags(**{ZONE: mib})[0]


def guard_tag(header: int) -> str:
    """Return the tag of an LV with a header guard, also after a boot.

    :param header: sectors of the volume's header
    """
    return tags(**{GUARDED: header})[0]


def facts(tags: Iterable[str]) -> dict[lvm_tags.Fact, str]:
    """Return the facts in an LV's tags."""
    pairs = [tag.removeprefix(lvm_tags.PREFIX).partition('=') for tag in tags
             if tag.startswith(lvm_tags.PREFIX)]
    return {typing.cast(lvm_tags.Fact, name): value
            for name, equals, value in pairs
            if equals and name in lvm_tags.FACTS}


def guarded(tags: Iterable[str]) -> int:
    """Return the guarded sectors of a volume, by its LV's tags; 0: none."""
    value = facts(tags).get(GUARDED, '')
    return int(value) if value.isdecimal() else 0


def own_tags(tags: Iterable[str]) -> list[str]:
    """Return the driver's own tags of an LV.

    The tag "shown" is not among them: it stays true without the driver.
    """
    return sorted(tag for tag in tags if tag.startswith(lvm_tags.PREFIX)
                  and not tag.startswith(lvm_tags.SHOWN.with_value('')))


def uncommitted(host: str) -> list[str]:
    """Return the tags of an uncommitted LV of a service's backend."""
    return tags(backend=_short(backend_of(host))) + [UNCOMMITTED]


def node_digest(host: str) -> str:
    """Return the value of the fact "on" for a node."""
    return _short(host)


def node_tag(host: str) -> str:
    """Return the tag of a snapshot's LV with the node that has it.

    :param host: its service host, as in the snapshot's row
    """
    return tags(on=node_digest(host))[0]


def handle(volume_id: str) -> str:
    """Return the device-mapper name of a volume's handle on every node."""
    return 'localclone-%s' % volume_id


def handle_path(volume_id: str) -> str:
    """Return the path of a handle for Nova and os-brick.

    It is constant for the volume's life, on every node.
    """
    return '/dev/mapper/' + handle(volume_id)


def clone(move_id: str) -> str:
    """Return the device-mapper name of a move's clone, on its destination."""
    return 'localclone-clone-%s' % move_id


def clone_path(move_id: str) -> str:
    """Return the path of a move's clone."""
    return '/dev/mapper/' + clone(move_id)


def source(move_id: str) -> str:
    """Return the device-mapper name of a move's read-only source device."""
    return 'localclone-source-%s' % move_id


def source_path(move_id: str) -> str:
    """Return the path of a move's source device, on its source."""
    return '/dev/mapper/' + source(move_id)


def absent_source(move_id: str) -> str:
    """Return the device-mapper name of an unreachable source's stand-in."""
    return 'localclone-absent-%s' % move_id


def crypt(volume_id: str) -> str:
    """Return the device-mapper name of a volume's crypt device."""
    return 'localclone-crypt-%s' % volume_id


def crypt_path(volume_id: str) -> str:
    """Return the path of a crypt device for Nova.

    It is constant for the volume's life, on every node.
    """
    return '/dev/mapper/' + crypt(volume_id)


def integrity(volume_id: str) -> str:
    """Return the name of an authenticated volume's dm-integrity device.

    The device is between the handle and the crypt device. cryptsetup creates
    it and chooses this name.
    """
    return crypt(volume_id) + '_dif'


def volume_of_integrity(name: str, uuid: str) -> str | None:
    """Return the volume id in the name of a dm-integrity device.

    :param uuid: its device-mapper UUID; since 2.8 cryptsetup calls it a part
        of another device
    :returns: None for another device, or another owner's
    """
    volume_id = _id_in(_INTEGRITY, name)
    own = re.fullmatch('CRYPT-(INTEGRITY|SUBDEV)-[0-9a-f]{32}-'
                       + re.escape(name), uuid)
    return volume_id if own else None


def is_integrity(name: str) -> bool:
    """Return whether a device of this name can be a dm-integrity device."""
    return bool(_INTEGRITY.fullmatch(name))


def volume_of_crypt(name: str, uuid: str) -> str | None:
    """Return the volume id in the name of a crypt device.

    :param uuid: its device-mapper UUID, made by cryptsetup
    :returns: None for another device, or another owner's
    """
    volume_id = _id_in(_CRYPT, name)
    own = re.fullmatch('CRYPT-LUKS[12]-[0-9a-f]{32}-' + re.escape(name), uuid)
    return volume_id if own else None


def volume_of_crypt_name(name: str) -> str | None:
    """Return the volume id in a crypt device's name, without its UUID.

    Another program may have chosen the name.
    """
    return _id_in(_CRYPT, name)


def guard(volume_id: str) -> str:
    """Return the device-mapper name of a volume's header guard."""
    return 'localclone-guard-%s' % volume_id


def guard_path(volume_id: str) -> str:
    """Return the path of a volume's header guard."""
    return '/dev/mapper/' + guard(volume_id)


def export_device(volume_id: str) -> str:
    """Return the device-mapper name of a volume's export device.

    It is exported instead of the handle while the volume has an upper device.
    """
    return 'localclone-export-%s' % volume_id


def export_device_path(volume_id: str) -> str:
    """Return the path of a volume's export device, on its home."""
    return '/dev/mapper/' + export_device(volume_id)


def volume_of_export_device(name: str) -> str | None:
    """Return the volume id in an export device's name; None in others."""
    return _id_in(_EXPORT_DEVICE, name)


def volume_of_guard(name: str) -> str | None:
    """Return the volume id in a header guard's name; None in others."""
    return _id_in(_GUARD, name)


def link(volume_id: str) -> str:
    """Return the path for Nova to a volume that Nova encrypts.

    It is constant for the volume's life, on every node. Its last part must not
    be the name of a device: os-brick's encryptors would take a device of that
    name for their own, and remove it.
    """
    return '%s/%s' % (LINKS, volume_id)


def is_crypt(name: str) -> bool:
    """Return whether a device of this name can be a crypt device."""
    return bool(_CRYPT.fullmatch(name))


def is_id(text: str) -> bool:
    """Return whether a text is an id, and so can be part of a path."""
    return bool(re.fullmatch(UUID, text))


def header_backup(volume_id: str, what: str) -> str:
    """Return the file name of a backup of a volume's header.

    It never has the header's LUKS UUID: a program with write access to the
    disk chooses that UUID.

    :param what: a number, or the reason of the backup
    """
    return '%s-%s' % (volume_id, what)


def is_header_backup(name: str) -> bool:
    """Return whether a file of this name is a header backup, also in part."""
    return bool(re.fullmatch(UUID + r'-[0-9a-z-]+(\.partial)?', name))


def secret(volume_id: str) -> str:
    """Return the name of a volume's key in the key manager."""
    return 'localclone volume ' + volume_id


def volume_of_secret(name: str | None) -> str:
    """Return the ID of the volume in the name of a secret.

    :returns: '' if the secret is not the driver's own
    """
    found = re.fullmatch(secret('(%s)' % UUID), name or '')
    return found[1] if found else ''


def reencryption_unit(volume_id: str) -> str:
    """Return the systemd unit of a volume's re-encryption."""
    return 'localclone-reencrypt-%s.service' % volume_id


def metadata_lv(move_id: str) -> str:
    """Return the LV that records which regions of a move are local."""
    return 'localclone-meta-%s' % move_id


def to_wipe(host: str, new_id: str) -> str:
    """Return a new name for an LV to be wiped.

    :param host: service host of the wiping service: another backend in the
        same volume group may overwrite less
    :param new_id: 12 hexadecimal digits, unique: no volume ever has this name
    """
    return 'localclone-wipe-%s-%s' % (_short(backend_of(host)), new_id)


def is_to_wipe(name: str, host: str = '') -> bool:
    """Return whether an LV of this name is to be wiped.

    :param host: service host of the wiping service; '': any
    """
    match = _TO_WIPE.fullmatch(name)
    return match is not None and (
        not host or match.group(1) == _short(backend_of(host)))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def snapshot_lv(snapshot_id: str) -> str:
    """Return the LV of a snapshot. ("snapshot..." is reserved by LVM.)"""
    return '_snapshot-%s' % snapshot_id


def ids_in(name: str) -> list[str]:
    """Return the ids in an LV's name, in their order.

    Cinder's volume_name_template may have anything before and after the id.
    """
    return re.findall(UUID, name)


def find_by_id(found: Mapping[str, _Found], name: str) -> _Found | None:
    """Return the entry with an id of an LV's name as its key; None without."""
    return next((found[key] for key in ids_in(name) if key in found), None)


def check_template(template: str) -> None:
    """Check that a volume_name_template makes LV names with volumes' ids.

    LV names are told apart by the ids in them.

    :raises ValueError: if it does not; the message has the reason
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
        raise ValueError('volume_name_template %r makes names of the '
                         'driver\'s other LVs' % template)


def lv_path(group: str, lv: str) -> str:
    """Return the path of an active LV."""
    return '/dev/%s/%s' % (group, lv)


def mapped_name(*parts: str) -> str:
    """Return LVM's device-mapper name for an LV, or a part of it.

    :param parts: group, LV, and the part's name
    """
    return '-'.join(part.replace('-', '--') for part in parts)


def device_uuid(name: str) -> str:
    """Return a device-mapper UUID; its prefix stops udev and LVM rules."""
    return 'LOCALCLONE-' + name


def volume_of_handle(name: str) -> str | None:
    """Return the volume id in a handle's name; None in others."""
    return _id_in(_HANDLE, name)


def move_of_clone(name: str) -> str | None:
    """Return the move id in a clone's name; None in others."""
    return _id_in(_CLONE, name)


def move_of_source(name: str) -> str | None:
    """Return the move id in a source device's name; None in others."""
    return _id_in(_SOURCE, name)


def move_of_metadata(name: str) -> str | None:
    """Return the move id in a metadata LV's name; None in others."""
    return _id_in(_METADATA, name)


def _id_in(pattern: re.Pattern[str], name: str) -> str | None:
    match = pattern.fullmatch(name)
    return match.group(1) if match else None


def is_device(name: str) -> bool:
    """Return whether a device-mapper device of this name can be our own."""
    return bool(_DEVICE.fullmatch(name))


def service_host(host: str | None) -> str:
    """Return a host without its pool: "n1@lc" of "n1@lc#pool".

    Like ``extract_host`` (cinder/volume/volume_utils.py), which is slow to
    import and refuses a volume without a host: here the result is ''.
    """
    return (host or '').partition('#')[0]


def backend_of(host: str | None) -> str:
    """Return the backend in a host, with or without its pool."""
    return service_host(host).partition('@')[2]


def same_backend(host: str, other: str) -> bool:
    """Return whether two service hosts are nodes of one backend section."""
    return backend_of(host) == backend_of(other)


def other_node(found: str | None, host: str) -> str:
    """Return a service host if it is another node of a host's backend.

    :param found: service host; None or '' if there is none
    :returns: '' if it is none, or the host itself
    """
    return found if found and found != host and same_backend(
        found, host) else ''


def backstore(device: str) -> str:
    """Return the name of a device's LIO storage object.

    All exports of a volume share a storage object.

    :param device: its path
    """
    name = device.rpartition('/')[2]
    volume_id = volume_of_export_device(name)
    return handle(volume_id) if volume_id else name


def is_backstore(name: str) -> bool:
    """Return whether a storage object of this name can be the driver's own."""
    return bool(_HANDLE.fullmatch(name) or _SOURCE.fullmatch(name))


def lock(host: str, volume_id: str) -> str:
    """Return the name of the lock for work on a volume on a node.

    The host is part of it: with a coordination backend for several nodes, a
    source waiting for its peer must not hold a lock that the peer needs.
    """
    return 'localclone-%s-%s' % (host, volume_id)
