# SPDX-License-Identifier: Apache-2.0
"""Exports of the kernel's iSCSI target (LIO), as configfs shows them.

Directories and links can be read at once even while a change of a target
hangs, so a reader never waits. For the layout see the kernel's
Documentation/target/tcm_mod_builder.rst and targetcli(8).
"""

from collections.abc import Iterator
from concurrent import futures
import dataclasses
import json
import os

from cinder_localclone.core import exceptions
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import process

ROOT = '/sys/kernel/config/target'


@dataclasses.dataclass(frozen=True)
class Export:
    """A target with a single device for a single initiator.

    :param store: name of the backstore
    :param device: path of its device
    :param serial: unit serial number of the backstore
    :param discards: whether discards are passed on: '1' or '0'
    :param initiator: initiator allowed to log in, in lower case as in the
        kernel
    :param readonly: whether the export is read-only: '1' or '0'
    :param portal: address and port, in the form of :func:`.iscsi.portal`
    :param user: CHAP user name
    :param password: CHAP password
    """

    store: str
    device: str
    serial: str
    discards: str
    initiator: str
    readonly: str
    portal: str
    user: str
    password: str = dataclasses.field(repr=False)


@privsep.entrypoint
def targets() -> str:
    """Return the names of the driver's targets, by any prefix: JSON list.

    Allows: lists iSCSI targets of the driver, by any prefix.

    The list is empty without configfs or the kernel module. For more than the
    names see :func:`exports`, which takes 5 ms for each target.
    """
    return json.dumps(_own())


def _own() -> list[str]:
    return [*filter(iscsi.is_iqn, _below('iscsi'))]


@privsep.entrypoint
def unfinished() -> str:
    """Return the names of targets without a portal: JSON list.

    Allows: lists iSCSI targets of the driver, by any prefix.

    No initiator can log in to them (yet): a portal is the last part that a
    target gets, and the first that it loses.
    """
    return json.dumps(
        [iqn for iqn in _own()
         if not any(_below(*tpg, 'np') for tpg in _groups(iqn))])


@privsep.entrypoint
def exports() -> str:
    """Return the driver's targets, by any prefix: JSON list of dictionaries.

    Allows: lists iSCSI targets of the driver, by any prefix, with the paths of
    their devices; no CHAP secrets.

    Each has ``iqn`` and ``devices`` (paths). Objects removed meanwhile are
    left out.
    """
    return json.dumps([
        {'iqn': iqn, 'devices': [_text(store, 'udev_path')
                                 for store in _stores_of(iqn)]}
        for iqn in _own()])


@privsep.entrypoint
def unused_backstores() -> str:
    """Return the driver's backstores without a target: JSON list of names.

    Allows: lists backstores of the driver.

    Each keeps its device open. A backstore for an export in creation is
    included.
    """
    used = {store for iqn in _below('iscsi') for store in _stores_of(iqn)}
    return json.dumps([
        name for hba in _below('core') if hba.startswith('iblock_')
        for name in _below('core', hba) if names.is_backstore(name)
        and os.path.join(ROOT, 'core', hba, name) not in used
        and _text(os.path.join(ROOT, 'core', hba, name), 'enable') == '1'])


@privsep.entrypoint
def hanging(timeout: float) -> list[str]:
    """Return the targets of this node with a hanging change.

    Allows: lists iSCSI targets of the node.

    A change of a target holds the target's lock, which a read of its
    parameters takes as well (iscsi_target_configfs.c). Targets of other
    programs are included.

    :param timeout: seconds, twice: for all targets together, then for each. A
        command that waits for a target can be killed
    """
    probes = {iqn: [os.path.join(ROOT, *tpg, 'param', 'MaxConnections')
                    for tpg in _groups(iqn)]
              for iqn in _below('iscsi')}
    if _answer(sum(probes.values(), []), timeout):
        return []
    # In parallel: the caller waits for a single further timeout, no matter how
    # many targets hang.
    with futures.ThreadPoolExecutor(16) as probing:
        answers = probing.map(lambda paths: _answer(paths, timeout),
                              probes.values())
        return [iqn for iqn, answer in zip(probes, answers) if not answer]


def _answer(paths: list[str], timeout: float) -> bool:
    try:
        process.run('cat', '/dev/null', *paths, timeout=timeout, ok=(0, 1))
    except exceptions.CommandTimeout:
        return False
    return True  # a removed target does not hang, either


def _groups(iqn: str) -> Iterator[tuple[str, ...]]:
    """Yield the target portal groups of a target."""
    for name in _below('iscsi', iqn):
        if name.startswith('tpgt_'):
            yield 'iscsi', iqn, name


def _stores_of(iqn: str) -> Iterator[str]:
    """Yield the directories of the backstores that a target exports."""
    for tpg in _groups(iqn):
        for lun in _below(*tpg, 'lun'):
            yield from _links(*tpg, 'lun', lun)


def export(iqn: str) -> Export | None:
    """Return the export under a target's name.

    About twenty files and directories are read, each at the place where the
    driver creates it. rtslib, which searches for all possible objects, takes
    40 ms with twenty targets.

    :returns: None if there is no target, it is incomplete, not of the driver's
        form, or can't be read
    """
    tpg = os.path.join(ROOT, 'iscsi', iqn, 'tpgt_1')
    lun = os.path.join(tpg, 'lun', 'lun_0')
    try:
        store, = _links(lun)
        initiator, = _below(tpg, 'acls')
        acl = os.path.join(tpg, 'acls', initiator)
        mapped, = _links(acl, 'lun_0')
        portal, = _below(tpg, 'np')
        if not (mapped == os.path.realpath(lun)
                and [*_groups(iqn)] == [('iscsi', iqn, 'tpgt_1')]
                and _below(tpg, 'lun') == ['lun_0']
                and [each for each in _below(acl)
                     if each.startswith('lun_')] == ['lun_0']
                and _text(tpg, 'enable') == _text(store, 'enable') == '1'
                and _plugin(store) == 'iblock'):
            return None
        return Export(
            os.path.basename(store), _text(store, 'udev_path'),
            _text(store, 'wwn', 'vpd_unit_serial').partition(':')[2].strip(),
            _text(store, 'attrib', 'emulate_tpu'), initiator,
            _text(acl, 'lun_0', 'write_protect'), _plain(portal),
            _text(acl, 'auth', 'userid'),
            _text(acl, 'auth', 'password'))
    except (OSError, ValueError):  # another number of objects, or not text
        return None


def _plain(portal: str) -> str:
    """Return a portal in the form of the driver: IPv6 has several forms."""
    address, _colon, port = portal.rpartition(':')
    return iscsi.portal(iscsi.plain(address), int(port))


def _plugin(store: str) -> str:
    """Return the kind of the backstore at a directory."""
    return os.path.basename(os.path.dirname(store)).rpartition('_')[0]


def _links(*where: str) -> list[str]:
    """Return the destinations of the links in a directory."""
    paths = [os.path.join(ROOT, *where, name) for name in _below(*where)]
    return [os.path.realpath(path) for path in paths if os.path.islink(path)]


def _below(*where: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(ROOT, *where)))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _text(*where: str) -> str:
    try:
        with open(os.path.join(*where)) as file:
            return file.read().strip()
    except FileNotFoundError:
        return ''
