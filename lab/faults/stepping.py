# SPDX-License-Identifier: Apache-2.0
"""Runs a volume service in a node so that it can be stopped at each step.

``python -m lab.faults.stepping DIRECTORY NODE SCALE PROGRAM ARGUMENTS...``
instead of the program; used in a lab that was brought up with the setting
``stepping``. The driver itself knows nothing of it: whatever *changes*
something is wrapped here, at the last place before the kernel, LVM or the
database.

Each effect that was done is written down, one file for a volume and a node
below ``<lab>/steps``. A file ``<volume>.stop`` there names a node and a step;
the work on that volume then stays right there, after the step, for as long
as the file exists. Everything else of the service goes on. That the place
was reached is told by ``<volume>.reached``. ``STEP (2)`` is the second time
that the step is done from now on.

As long as there is a file ``<volume>.still``, nothing of the volume is copied
in the background.

A file ``<node>.odd`` there names something that looks at sysfs: the next look
finds that nothing is there, or nothing in it, once.

The step ``commit unanswered`` is inside of one: the database has committed
the move, and when the work goes on, the connection has gone before the answer.

The work on what belongs to a volume is that volume's (:mod:`.owners`). With a
SCALE above 1 volumes are that much smaller on the disks (:mod:`.scaling`).
"""

import enum
import importlib
import os
import pathlib
import re
import sys
import threading
import time

from lab.core import quick_start
from lab.faults import answers
from lab.faults import scaling
from lab.scenarios import owners

#: Seconds after its start until a service counts what had not ended by then
#: as dead: ten minutes elsewhere.
DELIVERED = 20
#: A node and a step, and at which time to stay there.
TIMES = re.compile(r'(.*?)(?: \((\d+)\))?')
#: What an effect is done to, by the name of it.
KINDS = (('localclone-clone-', 'clone'), ('localclone-meta-', 'metadata'),
         ('localclone-source-', 'source'), ('remote-', 'remote'),
         ('iqn.', 'export'), ('localclone-crypt-', 'crypt'),
         ('localclone-', 'handle'),
         ('_snapshot-', 'snapshot'), ('volume-', 'volume'),
         ('/dev/sd', 'disk'))
#: By module and name: all that changes something on the node.
EFFECTS = {
    'storage.privsep.lvm': (
        'create_thin', 'create_thick', 'create_snapshot', 'zero_decrypted',
        'extend', 'zero', 'activate', 'deactivate', 'add_tag', 'remove_tag',
        'retag', 'retag_group', 'rename', 'protect', 'skip_activation',
        'remove', 'resume'),
    'storage.privsep.block': ('read_head', 'zero_head', 'flush',
                              'discard', 'disable_discards'),
    'storage.privsep.thin_pool': ('largest_holes', 'release_metadata_snapshot',
                                  'all_holes'),
    'storage.privsep.refill': ('refill',),
    'storage.privsep.iscsiadm': (
        'record_target', 'login', 'rescan', 'end_session',
        'set_recovery_timeout', 'bring_back'),
    'storage.privsep.dmsetup': ('create', 'swap_table', 'swap_flushed',
                                'remove', 'message', 'replace_suspended',
                                'discard_beneath', 'ensure_devnode'),
    'storage.privsep.lio': ('export', 'unexport'),
    'storage.privsep.links': ('ensure', 'remove'),
    'storage.privsep.cryptsetup': ('close', 'remove_integrity', 'erase',
                                   'import_token', 'remove_token', 'set_uuid'),
    'storage.privsep.header_backups': (
        'make', 'restore', 'drop', 'add', 'keep_only', 'remove',
        'save_beginning'),
    'storage.privsep.sealed_keys': ('seal', 'open_device', 'resize', 'forget',
                                    'end_reencryption'),
    'storage.privsep.cryptsetup_keys': (
        'format_luks1', 'format_luks2', 'open_device', 'resize', 'add_key',
        'kill_slot', 'begin_reencryption', 'end_reencryption'),
    'storage.privsep.reencrypt_process': ('start', 'stop'),
}
METHODS = {
    'db.moves.Moves': ('begin', 'advance', 'commit', 'roll_back', 'finish'),
    'db.volumes.Volumes': ('set_home', 'replace_backing', 'set_encryption',
                           'keep'),
    'db.snapshots.Snapshots': ('locate',),
    'db.secrets.Secrets': ('record',),
    'db.queue.Queue': ('note_stalled',),
    'db.interrupted.Interrupted': ('end_dead',),
    'db.attachments.Attachments': ('end_remote_attachments',
                                   'drop_attachment'),
    'service.key_manager.Keys': ('create',),
    'storage.iscsi_initiator.Sessions': ('attach', 'attach_remote'),
}
#: By module and name: what looks at sysfs, and an odd answer of it.
LOOKS = {
    'storage.privsep.iscsiadm': {'disks': '{}'},
    'storage.privsep.block': {
        'identity': (0, ''), 'number': '',
        'completed_reads': FileNotFoundError(2, 'as asked'),
        'size': FileNotFoundError(2, 'as asked')},
}
#: By module: sweeps over all of something, which may stay at one of them.
SWEEPS = {'volumes.clone': 'sweep_images',
          'moves.remote_attachment': 'sweep'}


class Steps:
    """What was done for each volume on this node, and where to stay.

    :param directory: shared by the nodes and the host
    """

    def __init__(self, directory: pathlib.Path, node: str,
                 find=owners.in_database):
        self.directory = directory
        self.node = node
        self._owners = owners.Owners(find)

    def know(self, move):
        """Whose the shadow and the LVs of a move are."""
        self._owners.learn((move.move_id, move.source_lv,
                            move.destination_lv), move.volume_id)
        return move

    def volume(self, args) -> str | None:
        """Whose work it is to do something with these."""
        found = next(filter(None, map(_id_in, args)), None)
        if found is None:
            return None
        owner = self._owners.of(found)
        if owner:  # and what is made of it, which may have no row yet
            self._owners.learn(
                [arg for arg in args if isinstance(arg, str)], owner)
        return owner or found

    def done(self, volume, label):
        """Write a step down; stay here if that is asked for."""
        path = self.directory / ('%s.%s' % (volume, self.node))
        line = '%.3f %s\n' % (time.time(), label)
        with open(path, 'a') as log:
            log.write(line)
        self._stay(volume, label)

    def about_to(self, volume, label):
        self._stay(volume, 'before ' + label)

    def _stay(self, volume, label):
        """:returns: whether the work has stayed here"""
        stop = self.directory / (volume + '.stop')
        try:
            wanted = stop.read_text().strip()
        except OSError:
            return False
        step, times = TIMES.fullmatch(wanted).groups()
        if step != '%s %s' % (self.node, label):
            return False
        if times and int(times) > 1:
            stop.write_text('%s (%d)' % (step, int(times) - 1))
            return False
        (self.directory / (volume + '.reached')).write_text(wanted)
        while stop.exists():
            time.sleep(0.1)
        return True

    def is_still(self, record):
        """Whether the volume of a move is not to be copied (yet)."""
        volume = self.volume([record])
        return (self.directory / (volume + '.still')).exists()

    def is_odd(self, name):
        """Whether a look is to have an odd answer: the next one, once."""
        asked = self.directory / (self.node + '.odd')
        try:
            if asked.read_text().strip() != name:
                return False
            asked.unlink()
        except OSError:
            return False
        return True

    def loses_answer(self, volume):
        """Stay before the answer; whether it is to be lost."""
        return self._stay(volume, 'commit unanswered')


def _id_in(arg):
    """The first id that one of an effect's arguments has."""
    found = getattr(arg, 'volume_id', None)
    if found is None and hasattr(arg, 'name_id'):
        found = arg.id
    if found is None and isinstance(arg, str):
        found = next(iter(owners.UUID.findall(named(arg))), None)
    return found


def named(word):
    """What has the id of the volume: of a SCSI disk, its serial number."""
    if not word.startswith('/dev/sd'):
        return word
    try:
        page = pathlib.Path('/sys/block', os.path.basename(word),
                            'device/vpd_pg80').read_bytes()
    except OSError:
        return ''
    return page.decode('ascii', 'replace')


def label_of(name, args, method) -> str:
    """An effect in words: its name and what it is done to.

    :param method: whether it is one of METHODS; what they are done to needs
        no telling, but the event does, after the first
    """
    if method:
        events = [arg.value for arg in args if isinstance(arg, enum.Enum)]
        return '%s: %s' % (name, events[0]) if events and (
            name != 'begin') else name
    words = [arg for arg in args if isinstance(arg, str)]
    if name == 'message':
        return words[1].split()[0]
    for word in words:
        for prefix, kind in KINDS:
            if prefix in word:
                return '%s %s' % (name, kind)
    return name


def wrap(steps, name, function, method=False):
    def stepped(*args, **kwargs):
        seen = args[1:] if method else args
        volume, label = steps.volume(seen), label_of(name, seen, method)
        if volume:
            steps.about_to(volume, label)
        result = function(*args, **kwargs)
        if volume and result is not False:
            steps.done(volume, label)
        return result
    return stepped


def unless_still(steps, set_hydration):
    """Copies go on as they should, but for those that are held back."""
    def set_hydration_unless(clones, record, enabled):
        return set_hydration(clones, record,
                             enabled and not steps.is_still(record))
    return set_hydration_unless


def odd(steps, name, function, answer):
    """A look that may have an odd answer."""
    def looked(*args, **kwargs):
        if not steps.is_odd(name):
            return function(*args, **kwargs)
        if isinstance(answer, Exception):
            raise answer
        return answer
    return looked


def lose_answers(steps):
    """Have the database connection fail when a move was committed.

    The error is the one of the client library, so the driver meets what it
    would meet: a transaction of which it can't know whether it took effect.
    """
    connections, errors, moves = [importlib.import_module(name) for name in (
        'pymysql.connections', 'pymysql.err', 'cinder_localclone.db.moves')]
    send, swap = connections.Connection.commit, moves.Moves.commit
    moving = threading.local()

    def commit(connection):
        send(connection)
        volume = getattr(moving, 'volume', None)
        if volume and steps.loses_answer(volume):
            connection._force_close()
            raise errors.OperationalError(
                2013, 'Lost connection to MySQL server during query')

    def commit_move(self, move, *args, **kwargs):
        moving.volume = move.volume_id
        try:
            return swap(self, move, *args, **kwargs)
        finally:
            moving.volume = None
    connections.Connection.commit = commit
    moves.Moves.commit = commit_move


def install(steps):
    """Wrap the driver's effects in this process."""
    lose_answers(steps)
    for module, names in EFFECTS.items():
        found = importlib.import_module('cinder_localclone.' + module)
        for name in names:
            setattr(found, name, wrap(steps, name, getattr(found, name)))
    for module, odd_answers in LOOKS.items():
        found = importlib.import_module('cinder_localclone.' + module)
        for name, answer in odd_answers.items():
            setattr(found, name, odd(steps, name, getattr(found, name),
                                     answer))
    for where, names in METHODS.items():
        module, _dot, kind = where.rpartition('.')
        found = getattr(importlib.import_module(
            'cinder_localclone.' + module), kind)
        for name in names:
            setattr(found, name, wrap(
                steps, name, getattr(found, name), True))
    reconciler = importlib.import_module(
        'cinder_localclone.volumes.reconcile').Reconciler
    reconciler._attempt = side_by_side(steps, reconciler._attempt)
    clones = importlib.import_module(
        'cinder_localclone.storage.clones').Clones
    clones.set_hydration = unless_still(steps, clones.set_hydration)
    for name, sweep in SWEEPS.items():
        module = importlib.import_module('cinder_localclone.' + name)
        setattr(module, sweep, aside(steps, getattr(module, sweep)))
    # What is sent to a service here is delivered as soon as it is back.
    importlib.import_module(
        'cinder_localclone.volumes.interrupted').DELIVERED = DELIVERED
    base = importlib.import_module('cinder_localclone.db.base')
    read = base.to_move
    base.to_move = lambda *rows: steps.know(read(*rows))


def side_by_side(steps, attempt):
    """A look at one volume that stays at a step must not hold up others.

    While any is to stop, each is looked at by a thread of its own, one at a
    time for each volume.
    """
    under_way = set()

    def observe(reconciler, volume, *how):
        try:
            attempt(reconciler, volume, *how)
        finally:
            under_way.discard(volume)

    def attempt_aside(reconciler, volume, *how):
        if not any(steps.directory.glob('*.stop')):
            attempt(reconciler, volume, *how)
        elif volume not in under_way:
            under_way.add(volume)
            threading.Thread(target=observe, args=(reconciler, volume, *how),
                             daemon=True).start()
    return attempt_aside


def aside(steps, observe):
    """The same for a look at all of something: it may stay at one of them.

    What it finds out is told by the next one.
    """
    under_way = threading.Lock()

    def ended(args):
        try:
            observe(*args)
        finally:
            under_way.release()

    def look_aside(*args):
        if not any(steps.directory.glob('*.stop')):
            return observe(*args)
        if under_way.acquire(blocking=False):
            threading.Thread(target=ended, args=(args,), daemon=True).start()
        return True
    return look_aside


def main():
    directory, node, scale, program = sys.argv[1:5]
    sys.argv = [program] + sys.argv[5:]
    # In this order: Cinder patches the standard library first of all, and
    # its drivers can't be imported before its objects are registered.
    from cinder.cmd import volume
    from cinder import objects
    objects.register_all()
    quick_start.look_seldom()
    if int(scale) > 1:
        scaling.shrink(int(scale))
    install(Steps(pathlib.Path(directory), node))
    answers.install(directory)
    quick_start.install()
    sys.exit(volume.main())


if __name__ == '__main__':
    os.umask(0o022)
    main()
