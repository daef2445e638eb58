# SPDX-License-Identifier: Apache-2.0
"""What the kernel's iSCSI target (LIO) serves, as configfs shows it.

Directories and links, which are read at once even while a change of a target
hangs: whoever only wants to know waits for nothing and nobody. Where things
are: the kernel's Documentation/target/tcm_mod_builder.rst, targetcli(8).
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
    """A target with one device for one initiator, as configfs shows it.

    :param store: name of the backstore
    :param device: path of its device
    :param serial: the unit serial number of that
    :param discards: whether they are passed on: '1' or '0'
    :param initiator: who may log in, in lower case, as the kernel has it
    :param readonly: whether it can only be read: '1' or '0'
    :param portal: where, as :func:`.iscsi.portal` has it
    :param user: CHAP user name, as ``password``
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
    """The names of the driver's targets, under any prefix: JSON list.

    Allows: lists iSCSI targets of the driver, by any prefix.

    There are none without configfs or the module. Whoever needs to know more
    of them asks for :func:`exports`, which takes 5 ms for each.
    """
    return json.dumps(_own())


def _own() -> list[str]:
    return [*filter(iscsi.is_iqn, _below('iscsi'))]


@privsep.entrypoint
def unfinished() -> str:
    """Those that nobody can log in to yet, or ever: JSON list of names.

    Allows: lists iSCSI targets of the driver, by any prefix.

    A portal is the last thing that each is given before it is enabled.
    """
    return json.dumps(
        [iqn for iqn in _own()
         if not any(_below(*tpg, 'np') for tpg in _groups(iqn))])


@privsep.entrypoint
def exports() -> str:
    """The driver's targets, under any prefix: JSON list of dictionaries.

    Allows: lists iSCSI targets of the driver, by any prefix, with the paths of
    their devices; no CHAP secrets.

    Each has ``iqn`` and ``devices`` (paths). What goes meanwhile is left out.
    """
    return json.dumps([
        {'iqn': iqn, 'devices': [_text(store, 'udev_path')
                                 for store in _stores_of(iqn)]}
        for iqn in _own()])


@privsep.entrypoint
def unused_backstores() -> str:
    """The driver's backstores that no target serves: JSON list of names.

    Allows: lists backstores of the driver.

    Each keeps its device open. One that is just being made is among them.
    """
    used = {store for iqn in _below('iscsi') for store in _stores_of(iqn)}
    return json.dumps([
        name for hba in _below('core') if hba.startswith('iblock_')
        for name in _below('core', hba) if names.is_backstore(name)
        and os.path.join(ROOT, 'core', hba, name) not in used
        and _text(os.path.join(ROOT, 'core', hba, name), 'enable') == '1'])


@privsep.entrypoint
def hanging(timeout: float) -> list[str]:
    """The targets, whoever has made them, that a change hangs in.

    Allows: lists iSCSI targets of the node.

    Whoever changes a target holds its lock, which each look at one of its
    parameters takes as well (iscsi_target_configfs.c).

    :param timeout: seconds, twice: for all together, then for each; a
        command that waits for a target can be killed
    """
    probes = {iqn: [os.path.join(ROOT, *tpg, 'param', 'MaxConnections')
                    for tpg in _groups(iqn)]
              for iqn in _below('iscsi')}
    if _answer(sum(probes.values(), []), timeout):
        return []
    # Side by side: whoever asks waits for one more, however many hang.
    with futures.ThreadPoolExecutor(16) as probing:
        answers = probing.map(lambda paths: _answer(paths, timeout),
                              probes.values())
        return [iqn for iqn, answer in zip(probes, answers) if not answer]


def _answer(paths: list[str], timeout: float) -> bool:
    try:
        process.run('cat', '/dev/null', *paths, timeout=timeout, ok=(0, 1))
    except exceptions.CommandTimeout:
        return False
    return True  # what has gone meanwhile does not hang, either


def _groups(iqn: str) -> Iterator[tuple[str, ...]]:
    """The target portal groups of a target."""
    for name in _below('iscsi', iqn):
        if name.startswith('tpgt_'):
            yield 'iscsi', iqn, name


def _stores_of(iqn: str) -> Iterator[str]:
    """The directories of the backstores that a target serves."""
    for tpg in _groups(iqn):
        for lun in _below(*tpg, 'lun'):
            yield from _links(*tpg, 'lun', lun)


def export(iqn: str) -> Export | None:
    """What a target serves, and to whom.

    Some twenty files and directories, each where the driver has it made:
    rtslib, which looks for all there could be, takes 40 ms with twenty
    targets.

    :returns: None if it is not there, not made to the end, or of any other
        kind; if it can't be read, too
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
    except (OSError, ValueError):  # not one of each, or not text
        return None


def _plain(portal: str) -> str:
    """A portal in the form of the driver: IPv6 has several."""
    address, _colon, port = portal.rpartition(':')
    return iscsi.portal(iscsi.plain(address), int(port))


def _plugin(store: str) -> str:
    """What kind of a backstore a directory is."""
    return os.path.basename(os.path.dirname(store)).rpartition('_')[0]


def _links(*where: str) -> list[str]:
    """Where the links in a directory lead."""
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
