# SPDX-License-Identifier: Apache-2.0
"""What can be broken in a node for a while, and how that is undone.

Each raises LabError if it could not break anything: a fault that is not there
proves nothing. :func:`undo` undoes all but :class:`DeviceBelow`.
"""

import contextlib
import time

from lab.core import process

#: A disk that no volume is on.
STRANGER = 'cinder-volumes/stranger'
#: The driver's thin pool; where its data is, and what that was before
#: :func:`slow_disk`.
POOL = 'cinder--volumes-cinder--volumes--pool-tpool'
POOL_DATA = 'cinder--volumes-cinder--volumes--pool_tdata'
_FAST = '/run/fast-disk'
#: Bytes.
BLOCK = 4096
SECTOR = 512

_WRAPPER = '''#!/bin/sh
# Fails once for the word in a file, if it is among the arguments.
word=$(cat /run/fail-dmsetup 2>/dev/null)
for each in "$@"; do
    if [ -n "$word" ] && [ "$each" = "$word" ]; then
        rm /run/fail-dmsetup
        echo "dmsetup: $word failed, as asked" >&2
        exit 1
    fi
done
exec /usr/sbin/dmsetup "$@"
'''

#: Runs in a node, with a device and what its serial number shall be.
_REPLACE_EXPORT = '''
import sys
import rtslib_fb
device, serial = sys.argv[1:]
target, = [target for target in rtslib_fb.FabricModule('iscsi').targets
           if 'localclone-' in target.wwn]
tpg, = target.tpgs
acl, = tpg.node_acls
store = list(tpg.luns)[0].storage_object
name, serial = store.name, store.wwn if serial == 'same' else None
store.delete()
store = rtslib_fb.BlockStorageObject(
    name, dev=device, wwn=serial, readonly=True)
lun = rtslib_fb.LUN(tpg, 0, storage_object=store)
rtslib_fb.MappedLUN(acl, 0, lun, write_protect=True)
'''

#: configfs of the targets; a parameter that cannot be read while its target
#: is being changed.
_TARGETS = '/sys/kernel/config/target/iscsi'
_LOCKED = _TARGETS + '/%s/tpgt_1/param/MaxConnections'

_RESUME = '''
dmsetup info -c --noheadings --separator ' ' -o name,suspended |
while read -r name state; do
    [ "$state" = Active ] || dmsetup resume "$name"
done
'''

_HIDE = 'mount -t tmpfs -o ro none /sys/kernel/config/target'
_SHOW = 'while umount /sys/kernel/config/target 2>/dev/null; do :; done'

_UNDO = _RESUME.replace('%', '%%') + _SHOW + '''
rm -f /run/bin/dmsetup /run/fail-dmsetup
ip route flush type blackhole
ahead=$(($(date +%%s) - %d))
if [ ${ahead#-} -gt 5 ]; then date -s @%d; fi
if lvs cinder-volumes/filler; then lvremove -q -f cinder-volumes/filler; fi
test ! -e %s
'''


def undo(node):
    """Undo what :func:`fail_once`, :func:`cut_off`, :func:`slow_disk`,
    :func:`fill_group`, :func:`fill_pool` and a changed clock have left.
    """
    now = int(time.time())
    if node.run(_UNDO % (now, now, _FAST), check=False).returncode:
        fast_disk(node)


# -- devices


def replace(node, name, table):
    """Give a device another table, whatever it holds.

    :raises LabError: if that fails; it is on its old table then
    """
    node.run(
        '/usr/sbin/dmsetup suspend --noflush --nolockfs %(name)s && '
        '/usr/sbin/dmsetup load %(name)s && '
        '/usr/sbin/dmsetup resume %(name)s || '
        '{ /usr/sbin/dmsetup resume %(name)s; exit 1; }' % {'name': name},
        stdin=table.strip().encode() + b'\n')


def table_of(node, name):
    """The device-mapper table of a device."""
    return node.run('/usr/sbin/dmsetup table ' + name).stdout.strip()


def mapper(lv):
    """The device-mapper name of an LV of the driver's group."""
    return 'cinder--volumes-' + lv.replace('-', '--')


def io_fails(node, words):
    """Whether the disk refuses a block.

    :param words: of dd(1): from where or to where, O_DIRECT
    :raises LabError: if it fails for another reason
    """
    done = node.run('dd bs=%d count=1 status=none %s' % (BLOCK, words),
                    check=False)
    if done.returncode and 'Input/output error' not in done.stderr:
        raise process.LabError('dd %s: %s' % (words, done.stderr[:300]))
    return bool(done.returncode)


def block_fails(node, path, block):
    """Whether a block of a device cannot be read."""
    return io_fails(node, 'if=%s of=/dev/null skip=%d iflag=direct' % (
        path, block))


class DeviceBelow:
    """A device beneath an LV that can be made to fail.

    :param lv: of the driver's group
    """

    def __init__(self, node, lv):
        self.node = node
        self.name = mapper(lv)
        self.path = '/dev/mapper/' + self.name
        self.real = 'real-' + lv
        self.table = table_of(node, self.name)
        self.sectors = self.table.split()[1]

    def fail(self, table):
        """:param table: target and arguments; %s: the real device, if any"""
        self.node.run('dmsetup create %s --table "%s"' % (
            self.real, self.table))
        replace(self.node, self.name, '0 %s %s' % (
            self.sectors, table.replace('%s', '/dev/mapper/' + self.real)))

    def fail_blocks(self, blocks):
        """Reads of these blocks fail, until something is written there."""
        self.fail('dust %%s 0 %d' % BLOCK)
        message = 'dmsetup message %s 0 ' % self.name
        self.node.run(' && '.join(
            [message + 'addbadblock %d' % block for block in blocks]
            + [message + 'enable']))
        if not self.reads_fail(blocks[0]):
            raise process.LabError('block %d can be read' % blocks[0])

    def reads_fail(self, block=0):
        """Whether the device refuses to read a block."""
        return block_fails(self.node, self.path, block)

    def writes_fail(self, block=0):
        """Tells by writing what is there: for a disk that has ended only."""
        return io_fails(self.node, 'if=%s of=%s skip=%d seek=%d iflag=direct '
                        'oflag=direct conv=notrunc' % (
                            self.path, self.path, block, block))

    def repair(self):
        """The device as it was."""
        replace(self.node, self.name, self.table)
        self.node.run('dmsetup remove --retry ' + self.real)


def slow_disk(node, milliseconds):
    """All I/O of the thin pool takes that much longer."""
    table = table_of(node, POOL_DATA)
    node.run('cat >' + _FAST, stdin=table.encode())
    slow = ''
    for line in table.splitlines():
        first, sectors, _linear, device, offset = line.split()
        slow += '%s %s delay %s %s %d\n' % (
            first, sectors, device, offset, milliseconds)
    replace(node, POOL_DATA, slow)


def fast_disk(node):
    """Undo :func:`slow_disk`."""
    replace(node, POOL_DATA, node.run('cat ' + _FAST).stdout)
    node.run('rm ' + _FAST)


# -- commands, room, network


def fail_once(node, word):
    """The next dmsetup that has this word among its arguments fails."""
    node.run('cat >/run/bin/dmsetup && chmod +x /run/bin/dmsetup && '
             'echo %s >/run/fail-dmsetup' % word, stdin=_WRAPPER.encode())


def has_failed(node):
    """Whether the command that :func:`fail_once` waits for has come."""
    return node.run('test -e /run/fail-dmsetup', check=False).returncode == 1


def fill_group(node):
    """The volume group has no extent left."""
    node.run('lvcreate -q -y -l 100%FREE -n filler cinder-volumes')


def fill_pool(node, spare=None):
    """Another's writes fill the thin pool.

    :param spare: bytes that are left; what needs more waits for room, a
        minute at most. None: none is left, and it fails
    """
    # LVM takes it for an error if it is as asked for already.
    node.run('pool=cinder-volumes/cinder-volumes-pool; '
             'lvcreate -q -y -T -V 64g -n filler $pool && '
             '{ [ $(lvs --noheadings -o lv_when_full $pool) = %s ] || '
             'lvchange -q --errorwhenfull %s $pool; }' % (
                 ('error', 'y') if spare is None else ('queue', 'n')))
    fill = ('dd if=/dev/zero of=/dev/cinder-volumes/filler bs=4M '
            'oflag=direct status=none ')
    if spare is None:
        node.run('! %s 2>/dev/null' % fill, timeout=300)
        return
    used, total = map(int, node.run(
        'dmsetup status --noflush ' + POOL).stdout.split()[5].split('/'))
    free = (total - used) * int(table_of(node, POOL).split()[5]) * SECTOR
    node.run(fill + 'iflag=count_bytes count=%d' % (free - spare),
             timeout=300)


def unfill(node):
    """Undo :func:`fill_group` or :func:`fill_pool`."""
    node.run('lvremove -q -f cinder-volumes/filler')


def cut_off(node, peer, on=True):
    """The node cannot send anything to its peer; all others it reaches."""
    node.run('ip route %s blackhole %s' % ('add' if on else 'del',
                                           peer.address))


# -- exports


def make_stranger(node, mib):
    """Another disk in the driver's pool, of a size in MiB."""
    node.run('lvcreate -q -y -T -V %dm -n stranger '
             'cinder-volumes/cinder-volumes-pool' % mib)


def export_stranger(node, serial):
    """Put the stranger in the place of the source of a node's only move,
    under its name.

    :param serial: 'same' as the source's, or 'new'
    """
    node.run([node.lab.python, '-W', 'ignore', '-c', _REPLACE_EXPORT,
              '/dev/' + STRANGER, serial])


def remove_stranger(node):
    """Remove it, as soon as the driver has put the source back in its place.

    :raises LabError: if it is still offered after 60 s
    """
    process.wait_for(
        'the stranger to be removed', lambda: not node.run(
            'lvremove -q -f ' + STRANGER, check=False).returncode,
        60, every=1)


# -- targets


def targets(node):
    """The names of a node's targets."""
    return [name for name in node.run('ls ' + _TARGETS, check=False
                                      ).stdout.split()
            if name.startswith('iqn.')]


def disk_of(node, iqn):
    """The name of the disk that a node's session with a target has."""
    return node.run(
        'for s in /sys/class/iscsi_session/session*; do '
        '[ "$(cat $s/targetname)" = %s ] && '
        'ls $s/device/target*/*/block; done' % iqn, check=False
    ).stdout.strip()


@contextlib.contextmanager
def hung_target(node, iqn, lv, reader):
    """A target is disabled in here: that waits for a read without an answer.

    The driver resumes its own devices and LVs if they are suspended, so one
    beneath the LV is.

    :param lv: of what it serves
    :param reader: a node that has a session with it
    """
    disk, under = disk_of(reader, iqn), DeviceBelow(node, lv)
    under.fail('linear %s 0')
    node.run('dmsetup suspend --noflush --nolockfs ' + under.real)
    try:
        reader.run('setsid dd if=/dev/%s of=/dev/null bs=%d count=1 '
                   'iflag=direct &>/dev/null </dev/null &' % (disk, BLOCK))
        process.wait_for('a read in flight', lambda: reader.run(
            'cat /sys/block/%s/inflight' % disk).stdout.split()[0] != '0', 10)
        node.run('setsid sh -c "echo 0 >%s/%s/tpgt_1/enable" &>/dev/null '
                 '</dev/null &' % (_TARGETS, iqn))
        process.wait_for('the target to hang', lambda: target_hangs(
            node, iqn), 20)
        yield
        if not target_hangs(node, iqn):
            raise process.LabError('the target hangs no more')
    finally:
        node.run('dmsetup resume ' + under.real)
        under.repair()
    process.wait_for('the target to come back', lambda: (
        not target_hangs(node, iqn)), 60)


def target_hangs(node, iqn):
    """Whether a change of a target is stuck."""
    return node.run('timeout 2 cat ' + _LOCKED % iqn,
                    check=False).returncode == 124


def forbid_login(node, iqn):
    """Another secret than the initiator has."""
    node.run('echo another-secret >$(ls -d %s/%s/tpgt_1/acls/*/auth)/password'
             % (_TARGETS, iqn))


def hide_target(node):
    """The kernel's target can neither be seen nor changed."""
    node.run(_HIDE)


def show_target(node):
    """Undo :func:`hide_target`."""
    node.run(_SHOW, check=False)


# -- the initiator


def disk_state(node, disk):
    """The state of a SCSI disk, as the kernel sees it."""
    return node.run('cat /sys/block/%s/device/state' % disk
                    ).stdout.strip()


def set_offline(node, disk):
    """All I/O of a SCSI disk fails at once."""
    node.run('echo offline >/sys/block/%s/device/state' % disk)


def forget_record(node, iqn):
    """The initiator's record of a target goes, under its session.

    :raises LabError: if there is none, or no session
    """
    node.run('rm -r /etc/iscsi/nodes/%s && '
             'iscsiadm -m session | grep -qw %s' % (iqn, iqn))
