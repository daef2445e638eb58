# SPDX-License-Identifier: Apache-2.0
"""Checks of ``cinder-localclone doctor``: stuck operations, and stripes.

As in :mod:`.checks`, each check judges its arguments only. :mod:`.doctor`
reads them from LVM, the kernel and the database.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import typing

from cinder_localclone.cmd.doctor.checks import FAIL
from cinder_localclone.cmd.doctor.checks import Finding
from cinder_localclone.cmd.doctor.checks import OK
from cinder_localclone.cmd.doctor.checks import WARN
from cinder_localclone.core import names

if typing.TYPE_CHECKING:
    from cinder_localclone.db import inventory

#: Least age of the statuses for :func:`interrupted_operations`, in seconds. By
#: then the node's sweeps have repaired a status, if they can. The query of the
#: database applies this limit.
PATIENCE = 1800
#: Remedies for an interrupted operation: by the phase of a move, or else by
#: ``what`` of :class:`.inventory.Unended`.
FIXES = {
    'volume': 'if no operation is running: openstack volume set --state '
              '%(usable)s %(id)s',
    'snapshot': 'if its volume is not being reverted: '
                'openstack volume snapshot set --state available %(id)s',
    'migration': 'if no copy is running: cinder reset-state '
                 '--reset-migration-status %(id)s',
    'starting': 'if no live migration is running: cinder-localclone move '
                'abort %(id)s (the instance is at the source), or move '
                'complete %(id)s (it is at the destination)',
    'completing': 'cinder-localclone volume repair %(id)s'}


def interrupted_operations(found: Iterable['inventory.Unended']
                           ) -> list[Finding]:
    """Report interrupted operations; see :mod:`.db.interrupted`.

    :param found: statuses older than :data:`PATIENCE`
    """
    return [_unended(each) for each in
            sorted(found, key=lambda each: (each.what, each.id))]


def _unended(each: 'inventory.Unended') -> Finding:
    fix = FIXES[each.status if each.what == 'move' else each.what]
    return Finding(
        '%s %s' % (each.what, each.id), WARN, '%s for %d min, at %s' % (
            each.status, each.seconds // 60, each.host),
        fix % {'id': each.id,
               'usable': 'in-use' if each.attached else 'available'})


def suspended(lvs: Mapping[str, typing.Any]) -> list[Finding]:
    """Report LVs left suspended by an LVM command; their users hang."""
    return [Finding(
        'LV ' + lv.name, FAIL, 'suspended: its reads and writes hang',
        'cinder-volume resumes the LVs of volumes; or: dmsetup resume '
        + names.mapped_name(lv.group, lv.name))
        for lv in sorted(lvs.values(), key=lambda each: each.name)
        if lv.suspended]


def to_wipe(lvs: Mapping[str, typing.Any], backends: Collection[str]
            ) -> list[Finding]:
    """Report the LVs to be wiped, and warn of LVs that can't be wiped.

    :param backends: the names of this node's enabled backends
    """
    found = [lv for lv in lvs.values() if names.is_to_wipe(lv.name)]
    if not found:
        return []
    findings = [Finding(
        'LVs to be wiped', OK, '%d, %.0f GiB in all, are being overwritten '
        'and removed' % (
            len(found), sum(lv.size for lv in found) / 2**30))]
    for lv in sorted(found, key=lambda each: each.name):
        # The name has a digest of the backend. The node in front of @ does not
        # matter.
        if not any(names.is_to_wipe(lv.name, '@' + each) for each in backends):
            findings.append(Finding(
                'LV ' + lv.name, WARN, 'to be wiped, but its backend is not '
                'enabled on this node: the driver does not overwrite '
                'it', 'enable the backend again; or overwrite the LV '
                'yourself, then run: lvremove %s/%s' % (
                    lv.group, lv.name)))
        elif lv.opened:
            findings.append(Finding(
                'LV ' + lv.name, WARN, 'to be wiped, but open, so it can\'t '
                'be overwritten',
                'find its user with "dmsetup ls --tree", and stop the '
                'program'))
    return findings


def pool_transactions(group: str, pool: str, of_lvm: int, of_kernel: int | None
                      ) -> list[Finding]:
    """Compare the states of a thin pool in LVM and in the kernel.

    An interrupted LVM command makes them differ. Later LVM commands then fail
    if they change the pool.

    :param of_lvm: the last transaction ID in LVM's metadata
    :param of_kernel: the ID in the pool; None if it is not active
    """
    check = 'thin pool transactions'
    if of_kernel in (None, of_lvm):
        return [Finding(check, OK)]
    device = names.mapped_name(group, pool, 'tpool')
    return [Finding(
        check, FAIL, 'LVM is at %d, the kernel at %d: an LVM command was '
        'interrupted, and further changes of %s/%s may fail' % (
            of_lvm, of_kernel, group, pool),
        'the next change of the pool by LVM repairs it, or reports an '
        'existing device_id N: in the latter case run lvchange -an on the '
        'unfinished LV, then dmsetup message %s 0 "delete N"' % device)]


def stripes(group: str, wanted: int, thin: bool, disks: Callable[[], int]
            ) -> list[Finding]:
    """Check whether a group has enough disks for stripes of new volumes.

    :param wanted: the option localclone_thick_stripes
    :param thin: whether the backend has a thin pool
    :param disks: counts the disks of the group
    """
    check = 'stripes'
    if wanted < 2:
        return []
    if thin:
        return [Finding(
            check, WARN, 'localclone_thick_stripes is %d, but volumes are '
            'thin: the option has no effect' % wanted,
            'stripe the thin pool, or remove the option')]
    count = disks()
    if count < wanted:
        return [Finding(
            check, FAIL, '%s is on %d disks, localclone_thick_stripes is %d: '
            'no volume can be created on this node, or move to it' % (
                group, count, wanted),
            'vgextend %s, or correct the option' % group)]
    return [Finding(check, OK, '%d of %d disks' % (wanted, count))]
