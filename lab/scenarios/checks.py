# SPDX-License-Identifier: Apache-2.0
"""The promises of the design, as far as looking at everything can tell.

What must be there follows from Cinder's database, row by row; whatever else
is there, or lacks, is named. Only a state that stays is wrong: work may be
under way, so all is checked again for a while.
"""

import collections
import time

from lab.core import observe
from lab.core import process
from lab.keys import leaks as leaking
from lab.scenarios import disk as disks
from lab.scenarios import owners

#: Seconds for strays to go: reconciliation runs a few times.
SETTLING = 75

#: LVM tags that no volume keeps.
_PASSING = {'localclone.uncommitted', 'localclone.deferred',
            'localclone.swapping',
            'localclone.away'}
_LOOK = r'''
echo "== lvs"
lvs --noheadings --separator '|' -o lv_name,lv_kernel_major,lv_kernel_minor,\
lv_tags cinder-volumes 2>/dev/null
echo "== devices"
dmsetup info -c --noheadings --separator '|' -o name,suspended
echo "== tables"
dmsetup table
echo "== pools"
dmsetup status --noflush --target thin-pool
echo "== sessions"
iscsiadm -m session 2>/dev/null
echo "== records"
iscsiadm -m node 2>/dev/null
echo "== exports"
ls /sys/kernel/config/target/iscsi 2>/dev/null | grep iqn
echo "== backstores"
ls -d /sys/kernel/config/target/core/iblock_*/* 2>/dev/null | grep localclone
true
'''


def _sections(text):
    sections = {}
    for line in text.splitlines():
        if line.startswith('== '):
            sections[line[3:]] = rows = []
        elif line.strip():
            rows.append(line.strip())
    return sections


def _rows(lab):
    names = ('id', 'backing', 'host', 'status', 'migration', 'size',
             'recorded', 'attached')
    return [dict(zip(names, row)) for row in observe.sql(
        lab, "SELECT id, COALESCE(_name_id, id), SUBSTRING_INDEX(host, '@', "
        "1), status, COALESCE(migration_status, ''), size, "
        "COALESCE(provider_id, ''), attach_status FROM volumes WHERE "
        "deleted = 0 AND host LIKE '%@localclone%'")]


def _header_sectors(row):
    """By which the driver takes a volume's LV for longer: encrypted ones."""
    words = row['recorded'].split(':')
    return int(words[2]) // 512 if words[:2] == ['lc2', 'luks2'] else 0


def _snapshots(lab):
    """All snapshots; the one who made them has deleted them by now."""
    return observe.sql(
        lab, "SELECT id, volume_id, status, COALESCE(provider_location, '') "
        "FROM snapshots WHERE deleted = 0")


def node_problems(node, rows):
    """What a node has that it should not, or lacks."""
    shown = _sections(node.run(_LOOK, timeout=60).stdout)
    lvs, tags = {}, {}
    for line in shown['lvs']:
        name, major, minor, tags[name] = line.split('|')
        lvs[name] = '%s:%s' % (major, minor)
    here = {row['id']: 'volume-' + row['backing'] for row in rows
            if row['host'] == node.name}
    own = {name for name in lvs
           if name.startswith(('volume-', '_snapshot-', 'localclone-'))}
    for name in sorted(own - set(here.values())):
        yield 'LV %s is left' % name
    for name in sorted(set(here.values()) - own):
        yield 'LV %s is missing' % name
    for name in sorted(own):
        for mark in _PASSING.intersection(tags[name].split(',')):
            yield 'LV %s is still tagged %s' % (name, mark)
    devices = dict(line.split('|') for line in shown['devices']
                   if '|' in line)
    handles = {'localclone-' + volume: lv for volume, lv in here.items()}
    upper_devices = {'localclone-crypt-' + row['id'] for row in rows
                     if row['id'] in here and _header_sectors(row)
                     and row['attached'] == 'attached'}
    for name in sorted(upper_devices - set(devices)):
        yield 'device %s is missing' % name
    for name, suspended in sorted(devices.items()):
        if name.startswith('localclone-') and (
                name not in handles and name not in upper_devices):
            yield 'device %s is left' % name
        if suspended != 'Active':
            yield 'device %s is suspended (%s)' % (name, suspended)
    for line in shown['pools']:
        if ' thin-pool ' in line and line.split()[7:8] != ['-']:
            yield 'the map of a thin pool is not released: ' + line
    tables = collections.defaultdict(list)
    for line in shown['tables']:
        name, _colon, segment = line.partition(': ')
        tables[name].append(segment)
    scale = node.lab.settings.get('stepping') or 1
    for row in rows:
        name, lv = 'localclone-' + row['id'], here.get(row['id'])
        wanted = '0 %d linear %s 0' % (
            ((int(row['size']) << 21) + _header_sectors(row)) // scale,
            lvs.get(lv))
        if lv and tables[name] != [wanted]:
            yield 'handle %s is not on %s: %s' % (
                name, lv, '; '.join(tables[name]) or 'no device')
    # The initiator's records hold CHAP secrets: they are leftovers, too.
    for what in ('sessions', 'records', 'exports', 'backstores'):
        for line in shown[what]:
            yield '%s left: %s' % (what, line)


def problems(lab, attachments):
    """What is wrong on the nodes and in the database, in words.

    :param attachments: ids of those that there must be
    """
    wrong = []
    rows = _rows(lab)
    for row in rows:
        if row['migration'].startswith('target:') or (
                row['status'] == 'maintenance'):
            wrong.append('shadow %(id)s is left (%(migration)s)' % row)
    rows = [row for row in rows
            if not row['migration'].startswith('target:')]
    wrong += ['snapshot %s of %s is left (%s, %s)' % tuple(row)
              for row in _snapshots(lab)]
    for each in process.in_parallel(
            [lambda n=node: list(node_problems(n, rows))
             for node in lab.nodes.values()]):
        wrong += each
    for name, node in lab.nodes.items():
        if not node.serves:
            wrong.append('the service of %s has ended' % name)
    there = {row[0] for row in observe.sql(
        lab, 'SELECT id FROM volume_attachment WHERE deleted = 0')}
    for each in sorted(there ^ set(attachments)):
        wrong.append('attachment %s is %s' % (
            each, 'left' if each in there else 'gone'))
    return wrong


def blamed(lab, problem):
    """Whose a problem is: the ids in it, and the volumes of what they name.

    A shadow, which may be deleted by now, has its volume in its name.
    """
    ids = set(owners.UUID.findall(problem))
    if not ids:
        return ids
    named = "('%s')" % "', '".join(sorted(ids))
    for row in observe.sql(
            lab, "SELECT display_name FROM volumes WHERE id IN %s UNION "
            "SELECT id FROM volumes WHERE _name_id IN %s UNION "
            "SELECT volume_id FROM snapshots WHERE id IN %s" % (
                (named,) * 3)):
        ids.update(owners.UUID.findall(row[0]))
    return ids


def settled(environment, disks_there, seconds=SETTLING):
    """What is still wrong after a while; ends at once when nothing is.

    :param disks_there: whose attachments there must be, and no others
    """
    return settled_with(environment.lab, [
        attached.id for disk in disks_there
        for attached in disk.attached.values()], seconds)


def settled_with(lab, attachments, seconds=SETTLING, every=2):
    """As :func:`settled`, by the ids of the attachments.

    :param every: seconds between two looks
    """
    deadline = time.monotonic() + seconds
    while True:
        wrong = problems(lab, attachments)
        if not wrong or time.monotonic() > deadline:
            return wrong
        time.sleep(every)


def leaks(environment, keys):
    """Where keys of encrypted volumes are that should not, in words."""
    return [] if not keys else [
        'a key is in ' + place for place in (
            *leaking.in_logs(environment.lab.logs, keys),
            *leaking.in_databases(environment.lab, keys))]


def clean(environment):
    """:raises LabError: if anything is left but the bystanders"""
    left = settled(environment, environment.bystanders)
    if left:
        raise process.LabError('; '.join(left))


def lvs_of(lab, disks_there):
    """{volume id: name of the LV that holds its data now}"""
    backing = {row['id']: row['backing'] for row in _rows(lab)}
    return {disk.volume: 'volume-' + backing[disk.volume]
            for disk in disks_there}


def removed_too_early(lab, source, lvs):
    """Sources that are gone before they may be: {volume id: in words}.

    They may when the destination needs them no more (``releasing``), and
    when the volume has another home and no move, or is deleted.

    :param lvs: {volume id: name of its LV at the source}
    """
    # In this order: what ends between the looks is no false alarm.
    there = observe.volume_lvs(source)
    phases = {volume: token.split(':')[1]
              for volume, token in observe.move_records(lab)}
    homes = {row['id']: row['host'] for row in _rows(lab)}
    removed = {}
    for volume, lv in lvs.items():
        phase = phases.get(volume)
        over = phase is None and homes.get(volume) != source.name
        if lv not in there and not over and phase != 'releasing':
            removed[volume] = 'LV %s of %s is gone from %s (phase %s)' % (
                lv, volume, source.name, phase)
    return removed


def home_has_lv(environment, disk):
    """:raises LabError: if a volume's LV is not at the volume's home"""
    home, = [row['host'] for row in _rows(environment.lab)
             if row['id'] == disk.volume]
    lv = lvs_of(environment.lab, [disk])[disk.volume]
    if lv not in observe.volume_lvs(environment.nodes[home]):
        raise process.LabError('LV %s of %s is gone from its home %s' % (
            lv, disk.volume, home))


def services(environment):
    """:raises LabError: if a service is not up, as Cinder sees it"""
    environment.lab.wait_for_services(timeout=60)


def bystanders(environment):
    """The volumes of another project: data as it was, and served.

    :raises LabError: if not
    """
    for disk, node in zip(environment.bystanders, environment.nodes.values()):
        disk.verify(node)
        disk.fill(node, first=disks.SPARE, count=1)
        if disk.home() != node.name:
            raise process.LabError('bystander %s has moved' % disk.volume)
