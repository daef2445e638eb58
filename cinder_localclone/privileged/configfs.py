# SPDX-License-Identifier: Apache-2.0
"""What the kernel's iSCSI target (LIO) serves, as configfs shows it.

Directories and links, which are read at once even while a change of a target
hangs: whoever only wants to know waits for nothing and nobody. Where things
are: the kernel's Documentation/target/tcm_mod_builder.rst, targetcli(8).
"""

from collections.abc import Iterator
from concurrent import futures
import json
import os

from cinder_localclone import exceptions
from cinder_localclone import names
from cinder_localclone import privileged
from cinder_localclone.privileged import process

ROOT = '/sys/kernel/config/target'


@privileged.entrypoint
def targets(prefix: str) -> str:
    """The names of the targets under a prefix: JSON list.

    There are none without configfs or the module. Whoever needs to know more
    of them asks for :func:`exports`, which takes 5 ms for each.
    """
    return json.dumps(
        [iqn for iqn in _below('iscsi') if iqn.startswith(prefix)])


@privileged.entrypoint
def unfinished(prefix: str) -> str:
    """Those that nobody can log in to yet, or ever: JSON list of names.

    A portal is the last thing that each is given before it is enabled.
    """
    return json.dumps(
        [iqn for iqn in _below('iscsi') if iqn.startswith(prefix)
         and not any(_below(*tpg, 'np') for tpg in _groups(iqn))])


@privileged.entrypoint
def exports(prefix: str) -> str:
    """The targets under a prefix: JSON list of dictionaries.

    Each has ``iqn`` and ``devices`` (paths). What goes meanwhile is left out.
    """
    return json.dumps([
        {'iqn': iqn, 'devices': [_text(store, 'udev_path')
                                 for store in _stores_of(iqn)]}
        for iqn in _below('iscsi') if iqn.startswith(prefix)])


@privileged.entrypoint
def unused_backstores() -> str:
    """The driver's backstores that no target serves: JSON list of names.

    Each keeps its device open. One that is just being made is among them.
    """
    used = {store for iqn in _below('iscsi') for store in _stores_of(iqn)}
    return json.dumps([
        name for hba in _below('core') if hba.startswith('iblock_')
        for name in _below('core', hba) if names.is_backstore(name)
        and os.path.join(ROOT, 'core', hba, name) not in used
        and _text(os.path.join(ROOT, 'core', hba, name), 'enable') == '1'])


@privileged.entrypoint
def hanging(prefix: str, timeout: float) -> list[str]:
    """The targets under a prefix that a change hangs in.

    Whoever changes a target holds its lock, which each look at one of its
    parameters takes as well (iscsi_target_configfs.c).

    :param timeout: seconds, twice: for all together, then for each; a
        command that waits for a target can be killed
    """
    probes = {iqn: [os.path.join(ROOT, *tpg, 'param', 'MaxConnections')
                    for tpg in _groups(iqn)]
              for iqn in _below('iscsi') if iqn.startswith(prefix)}
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
            for name in _below(*tpg, 'lun', lun):
                path = os.path.join(ROOT, *tpg, 'lun', lun, name)
                if os.path.islink(path):
                    yield os.path.realpath(path)


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
