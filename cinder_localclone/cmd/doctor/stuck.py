# SPDX-License-Identifier: Apache-2.0
"""What ``cinder-localclone doctor`` finds in a state that should not last.

As in :mod:`.checks`, each check judges what it is given.
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

#: Seconds after which a status has lasted too long: a node's own look has
#: ended by then what it can.
PATIENCE = 1800
#: What to do about a volume's status, a snapshot's, Cinder's own migration,
#: and the phases of a move.
FIXES = {
    'volume': 'if nothing is at work on it: '
              'openstack volume set --state %(usable)s %(id)s',
    'snapshot': 'if its volume is not being reverted: '
                'openstack volume snapshot set --state available %(id)s',
    'migration': 'if nothing copies it: '
                 'cinder reset-state --reset-migration-status %(id)s',
    'starting': 'if no live migration is under way: cinder-localclone abort '
                '%(id)s (the instance is at the source), or resume %(id)s '
                '(it is at the destination)',
    'completing': 'cinder-localclone repair %(id)s'}


def unended(found: Iterable['inventory.Unended']) -> list[Finding]:
    """Statuses that nobody ends any more; see :mod:`.db.interrupted`."""
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
    """LVs that an LVM command has left suspended: who uses them hangs."""
    return [Finding(
        'LV ' + lv.name, FAIL, 'suspended: reads and writes of it wait',
        'cinder-volume resumes it if it is a volume\'s; or: dmsetup resume '
        + names.mapped(lv.group, lv.name))
        for lv in sorted(lvs.values(), key=lambda each: each.name)
        if lv.suspended]


def to_wipe(lvs: Mapping[str, typing.Any], backends: Collection[str]
            ) -> list[Finding]:
    """LVs that are no volume's any more, and have yet to be overwritten.

    :param backends: the names of those that this node has
    """
    found = [lv for lv in lvs.values() if names.is_to_wipe(lv.name)]
    if not found:
        return []
    findings = [Finding(
        'doomed LVs', OK, '%d, %.0f GiB in all, are being overwritten and '
        'removed, one by one' % (
            len(found), sum(lv.size for lv in found) / 2**30))]
    for lv in sorted(found, key=lambda each: each.name):
        if not any(names.is_to_wipe(lv.name, '@' + each) for each in backends):
            findings.append(Finding(
                'LV ' + lv.name, WARN, 'belongs to no volume any more, and to '
                'a backend that is not enabled on this node: the driver will '
                'not overwrite '
                'it', 'enable that backend again; or overwrite the '
                'LV yourself, then run: lvremove %s/%s' % (
                    lv.group, lv.name)))
        elif lv.opened:
            findings.append(Finding(
                'LV ' + lv.name, WARN, 'belongs to no volume any more, but '
                'something has it open, so it can\'t be overwritten',
                'find its user with "dmsetup ls --tree", and end that '
                'program'))
    return findings


def transactions(group: str, pool: str, of_lvm: int, of_kernel: int | None
                 ) -> list[Finding]:
    """Whether LVM and the kernel agree on what a thin pool has.

    Where an LVM command was cut short they do not, and each later one that
    changes the pool fails.

    :param of_lvm: the last transaction's id by LVM's metadata
    :param of_kernel: by the pool's own; None if it is not active
    """
    check = 'thin pool transactions'
    if of_kernel in (None, of_lvm):
        return [Finding(check, OK)]
    device = names.mapped(group, pool, 'tpool')
    return [Finding(
        check, FAIL, 'LVM is at %d, the kernel at %d: an LVM command was cut '
        'short, others that change %s/%s may fail' % (
            of_lvm, of_kernel, group, pool),
        'the next LVM command that changes the pool mends it, or names the '
        'device_id N that exists: then lvchange -an the LV that was being '
        'made, and dmsetup message %s 0 "delete N"' % device)]


def stripes(group: str, wanted: int, thin: bool, disks: Callable[[], int]
            ) -> list[Finding]:
    """Whether a group has as many disks as new volumes have stripes.

    :param disks: counts them
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
