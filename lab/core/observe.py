# SPDX-License-Identifier: Apache-2.0
"""Reads the state of nodes and of the database, for demos and tests."""

import re

from lab.core import process


def clones(node):
    """Return the clones of a node.

    :returns: {name: (hydrated regions, all regions, region bytes)}
    """
    progress = {}
    for name, region, hydrated, regions in re.findall(
            r'(?m)^(\S+): \d+ \d+ clone \d+ \d+/\d+ (\d+) (\d+)/(\d+) ',
            node.run('dmsetup status --noflush', check=False,
                     timeout=30).stdout):
        progress[name] = int(hydrated), int(regions), int(region) * 512
    return progress


def clone_progress(node):
    """Return the progress of the first clone, as :func:`clones`, or None."""
    return next(iter(clones(node).values()), None)


def source_sectors(node):
    """Return the sectors read from the disk of a node's only session.

    Documentation/block/stat.rst; 0 if there is none (any more).
    """
    words = node.run(
        'cat /sys/class/iscsi_session/*/device/target*/*/block/*/stat',
        check=False, timeout=30).stdout.split()
    return int(words[2]) if words else 0


def leftovers(node, volume_id):
    """Return the leftovers of moves on a node, in words.

    :param volume_id: of a volume without a handle here; None: all may have
    """
    left = []
    for line in node.run('dmsetup ls 2>/dev/null', check=False
                         ).stdout.splitlines():
        name = line.split()[0] if line.strip() else ''
        if name.startswith(('localclone-clone', 'localclone-source',
                            'localclone-export')) or (
                volume_id and name == 'localclone-' + volume_id):
            left.append('device ' + name)
    for line in node.run('lvs --noheadings -o lv_name 2>/dev/null'
                         ).stdout.split():
        if line.startswith('localclone-meta'):
            left.append('LV ' + line)
    for line in node.run('ls /sys/kernel/config/target/iscsi', check=False
                         ).stdout.split():
        if 'localclone-' in line:
            left.append('export ' + line)
    return left + ['session ' + line for line in sessions(node)]


def sessions(node):
    """Return the iSCSI sessions of a node, as iscsiadm prints them."""
    return node.run('iscsiadm -m session 2>/dev/null', check=False
                    ).stdout.splitlines()


def handles(node):
    """Return the ids of the volumes with a handle on a node, sorted."""
    return sorted(re.findall(r'(?m)^localclone-([0-9a-f]{8}-[-0-9a-f]{27})\s',
                             node.run('dmsetup ls').stdout))


def volume_lvs(node):
    """Return the names of the LVs of volumes on a node, sorted."""
    return sorted(name for name in node.run(
        'lvs --noheadings -o lv_name cinder-volumes 2>/dev/null'
    ).stdout.split() if name.startswith('volume-'))


def sql(lab, statement, database='cinder'):
    """Return the rows of a statement in a database: lists of strings."""
    out = process.run(
        'mariadb', '--socket=%s' % (lab.control.directory / 'mysql.sock'),
        '-uroot', '-N', '-B', database, '-e', statement)
    return [line.split('\t') for line in out.splitlines()]


def move_records(lab):
    """Return the moves in the database: (volume id, token) of each."""
    return [(row[0].partition(':')[2], row[1]) for row in sql(
        lab, "SELECT migration_status, replication_driver_data FROM volumes "
        "WHERE deleted = 0 AND migration_status LIKE 'target:%'")]


def is_moving(lab, volume_id):
    """Return whether the database has a move of a volume."""
    return any(moving == volume_id for moving, _token in move_records(lab))


def wait_moved(lab, volume_id, timeout=300):
    """Wait until a volume's move has ended with success."""
    def ended():
        if is_moving(lab, volume_id):
            return None
        volume = lab.cinder().get('/volumes/' + volume_id).json()['volume']
        return volume['migration_status'] == 'success'
    return process.wait_for('the move of %s to end' % volume_id, ended,
                            timeout, lab.logs / 'node2.cinder-localclone.log')


def wait_no_move(lab, volume_id, timeout=300):
    """Wait until a volume has no move, or its move has ended."""
    process.wait_for('the copy of %s to end' % volume_id,
                     lambda: not is_moving(lab, volume_id), timeout, every=1)


def wait_deleted(lab, timeout=90):
    """Wait until neither the database nor a node has a volume."""
    process.wait_for(
        'the volumes to go', lambda: not (sql(
            lab, 'SELECT id FROM volumes WHERE deleted = 0') or any(
                volume_lvs(node) for node in lab.nodes.values())), timeout,
        lab.logs / 'node2.cinder-localclone.log')


def take_volumes(lab, node=None):
    """Have Cinder's scheduler choose this node for new volumes; None: any.

    By SQL: the API's change is lost within a heartbeat.
    """
    sql(lab, "UPDATE services SET disabled = (%s) WHERE `binary` = "
        "'cinder-volume'" % ("host NOT LIKE '%s@%%'" % node if node else 0))
