# SPDX-License-Identifier: Apache-2.0
"""The base of functional tests: the labs of a run, shared by its tests."""

import atexit
import os
import time
import uuid

import testtools
from testtools import content

from lab.core import instance as instances
from lab.core import node as nodes
from lab.core import observe
from lab.core import process
from lab import Lab
from lab.scenarios import checks


#: MiB with data of a volume of 1 GiB: a copy takes a while. The rest is a
#: hole, which no move copies.
OCCUPIED = 256
#: MiB at the beginning of a volume which a test compares.
CHECKED = 32
#: The rate of the source's link during a test of a copy, which then takes
#: more than a minute.
BRAKE = '24mbit'
#: Options of the driver which shorten tests. Only the link slows a copy down
#: (:meth:`LabTest.brake`): its speed is the same with any options.
QUICK = {'localclone_verify_timeout': 10,
         'localclone_enable_online_extend': True}
#: Seconds between two checks of the moves: MOVE_INTERVAL of service.assembly.
MOVES = 5
#: Seconds until a test's volumes are gone. Thick LVs are overwritten first.
GONE = 150
#: A lab of thick LVs, and the options of its backends.
THICK = 'thick'
WITH_THICK = {'lvm_type': 'default'}
#: The only lab with a key manager, and the options of its backends. The sweep
#: resumes paused work.
KEYS = 'keys'
WITH_KEYS = dict(QUICK, localclone_header_backup_dir=nodes.HEADERS,
                 localclone_reconcile_interval=5,
                 localclone_enable_integrity=True)


def _say(text):
    # The number is in the names of this process's labs: several may run.
    print('  lab %d: %s' % (os.getpid(), text), flush=True)


def take_down(lab):
    """Take a lab down; its logs stay if a test has failed."""
    keep = bool(_failures) or any(
        isinstance(each, process.LabError) for each in _labs.values())
    if keep and lab.directory.exists():
        _say('a test failed; logs: %s' % lab.logs)
    lab.down(keep_logs=keep)


def note_failure(_exc_info):
    _failures.append(True)


#: Prints the driver's devices of a node, and their paths.
DEVICES = ('date +%T; dmsetup table | grep ^localclone; '
           'dmsetup info -c --noheadings -o name,open | grep ^localclone; '
           'cd /dev/mapper; for each in localclone-*; do '
           'echo "$each -> $(readlink $each)"; done')
#: Lines of a service's log that are shown of a node, and columns of each.
LINES, COLUMNS = 6, 300


def state_of(node):
    """Return the devices of a node, and what its service said last, as text.

    :returns: or why it could not be read
    """
    try:
        devices = node.run(DEVICES, timeout=20, check=False).stdout
    except process.LabError as exc:
        devices = str(exc)
    said = [line[:COLUMNS] for line in node.service_log().splitlines()
            if ' cinder_localclone.' in line][-LINES:]
    return '\n'.join(['%s, %s' % (node.name, devices.rstrip()), *said])


_failures = []
#: The running labs by name; the error of a lab which did not come up.
_labs = {}
#: The names of labs which were already tried a second time.
_tried_again = set()


def _is_like(lab, options, nodes, parts):
    """Return whether a running lab fits a test."""
    def text(of):
        return {name: str(value) for name, value in of.items()}
    return (text(lab.settings['options']) == text(options)
            and lab.settings['nodes'] == nodes
            and parts.items() <= lab.settings.items())


def shared_lab(name='test', options=QUICK, nodes=2, **parts):
    """Return a lab of this process, or the lab $LOCALCLONE_TEST_LAB.

    :param name: of the lab; labs which differ need different names
    :param options: of its backends, besides the lab's own
    :param nodes: the number of nodes
    :param parts: optional parts of the lab (nova, keys)
    """
    if name not in _labs:
        given = os.environ.get('LOCALCLONE_TEST_LAB')
        if given and not _is_like(Lab(given), options, nodes, parts):
            given = None
        lab = Lab(given or '%s%d' % (name, os.getpid()))
        lab.preloads = True
        _labs[name] = lab
        if not given:
            atexit.register(take_down, lab)
            try:
                lab.up(progress=_say, options=options, nodes=nodes, **parts)
            except process.LabError as exc:
                _labs[name] = exc
    if isinstance(_labs[name], process.LabError):
        raise _labs[name]
    return _labs[name]


def forget_failed_labs():
    """Have labs which did not come up tried a second time, not a third."""
    for name, lab in list(_labs.items()):
        if isinstance(lab, process.LabError) and name not in _tried_again:
            _tried_again.add(name)
            del _labs[name]


def end_lab(name):
    """Take down a lab of :func:`shared_lab`."""
    lab = _labs.pop(name, None)
    if (lab and not isinstance(lab, process.LabError)
            and lab.claim.holder == os.getpid()):
        take_down(lab)


def messages(lab, volume):
    """Return a volume's user messages: (when, text), newest first.

    Cinder keeps whole seconds, and sorts those of one second by chance.
    """
    found = lab.cinder('demo').get('/messages').json()['messages']
    return [(message['created_at'], message['user_message'])
            for message in found if message['resource_uuid'] == volume]


def told(lab, volume):
    """Return the user messages of the newest second, or ''."""
    found = messages(lab, volume)
    return '\n'.join(text for when, text in found if when == found[0][0])


class LabTest(testtools.TestCase):

    #: The name of the lab, and additional options of its backends.
    lab_name = 'test'
    options = QUICK
    nodes = 2
    #: Optional parts of the lab: nova, keys.
    parts: dict = {}

    def setUp(self):
        super().setUp()
        self.addOnException(note_failure)
        self.addOnException(self.note_nodes)
        self.lab = shared_lab(self.lab_name, self.options, self.nodes,
                              **self.parts)
        self.n1 = self.lab.nodes['node1']
        self.n2 = self.lab.nodes['node2']
        self.demo = self.lab.cinder('demo')
        self.instance = instances.Instance(self.lab)
        #: The checksum of a part of each :meth:`moving_volume` which is
        #: copied late and has no writer.
        self.late = {}
        self.addCleanup(self.mend)

    def note_nodes(self, _exc_info):
        """Keep the state of the nodes as the test fails; later it changes."""
        lab = _labs.get(self.lab_name)
        if isinstance(lab, Lab):
            self.addDetail('nodes', content.text_content('\n'.join(
                state_of(node) for node in lab.nodes.values()
                if node.is_on)))

    def set_options(self, **options):
        """Restart the volume services with more options, for this test."""
        before = self.lab.settings['options']
        self.addCleanup(self.restart_with, before)
        self.restart_with(dict(before, **options))

    def restart_with(self, options):
        """Restart the volume services with these options."""
        self.lab.settings['options'] = options
        for node in self.lab.nodes.values():
            if not node.is_on:
                node.power_on()
            self.lab.write_service_config(node)
        self.restart_all(*self.lab.nodes.values())

    def restart_all(self, *nodes):
        """Restart the volume services of nodes, side by side."""
        process.in_parallel(
            [lambda each=node: each.service('restart') for node in nodes])
        for node in nodes:
            node.wait_service()
        self.lab.wait_for_services()

    def extend(self, volume, gib=2, status='available'):
        """Extend a volume as its owner does; wait for its status.

        A request that Cinder refuses leaves the status, but not the size.
        """
        self.act(volume, 'os-extend', self.demo,
                 new_size=gib).raise_for_status()
        instances.wait_status(self.demo, volume, status)
        self.assertEqual(gib, self.row(volume)['size'])

    def wait_two_checks(self):
        """Wait for two periodic checks of the moves."""
        time.sleep(2 * MOVES + 1)

    def mend(self):
        """Repair the lab after any test.

        :raises LabError: if that can't be done, or the driver has left
            anything behind; the next test gets another lab then
        """
        try:
            self._mend()
        except process.LabError:
            end_lab(self.lab_name)
            raise

    def _mend(self):
        process.in_parallel(
            [lambda each=node: self.mend_node(each)
             for node in self.lab.nodes.values()])
        self.lab.wait_for_services()
        nova = self.lab.cinder('nova')
        for found in nova.get('/attachments').json()['attachments']:
            nova.delete('/attachments/' + found['id'])
        for volume in self.demo.get('/volumes/detail').json()['volumes']:
            if volume['status'] not in ('available', 'deleting'):
                instances.reset(self.lab, volume['id'])
            self.demo.delete('/volumes/' + volume['id'])
        process.wait_for('the volumes to go', lambda: not observe.sql(
            self.lab, 'SELECT id FROM volumes WHERE deleted = 0'), GONE,
            self.lab.logs / 'node2.cinder-localclone.log')
        left = checks.settled_with(self.lab, [], GONE, every=0.5)
        if left:
            raise process.LabError('left behind: ' + '; '.join(left))

    def mend_node(self, node):
        """Have a node and its services run again."""
        node.network_heal()
        if not node.is_on:
            node.power_on()
        # The guest of a failed test keeps its volume busy.
        found = node.run(
            'kill $(pgrep -f "[d]isk_io.py write") 2>/dev/null; '
            'tc qdisc show dev vec0 root; '
            'kill -0 -- -$(cat /run/cinder-localclone.pid) && echo runs',
            check=False).stdout
        if 'netem' in found or 'cake' in found:
            node.netem()
        if 'runs' not in found:
            node.service('start')

    def volume(self, size=1, node='node1', volume_type='localclone'):
        return instances.create_volume(self.demo, size, volume_type,
                                       node=node)

    def created_in_vain(self, node):
        """Fail to create a volume on a node; return its id."""
        observe.take_volumes(self.lab, node)
        try:
            volume = self.demo.post('/volumes', json={'volume': {
                'size': 1, 'volume_type': 'localclone'}},
            ).raise_for_status().json()['volume']['id']
            instances.wait_status(self.demo, volume, 'error')
        finally:
            observe.take_volumes(self.lab)
        return volume

    def put_in_group(self, volume):
        """Put a volume in a group, which keeps it on its node."""
        group = str(uuid.uuid4())
        observe.sql(self.lab,
                    "INSERT INTO `groups` (id, deleted, status, host) "
                    "VALUES ('%s', 0, 'available', 'node1@localclone')"
                    % group)
        # Before the volume is deleted.
        self.addCleanup(observe.sql, self.lab, "DELETE FROM `groups`")
        self.addCleanup(self.take_out_of_group, volume)
        observe.sql(self.lab, "UPDATE volumes SET group_id = '%s' WHERE "
                    "id = '%s'" % (group, volume))

    def take_out_of_group(self, volume):
        observe.sql(self.lab, "UPDATE volumes SET group_id = NULL WHERE "
                    "id = '%s'" % volume)

    def act(self, volume, action, client=None, **how):
        """Request an action on a volume; return the answer, unchecked.

        :param client: of the API; None: the administrator's
        """
        return (client or self.lab.cinder()).post(
            '/volumes/%s/action' % volume, json={action: how})

    def row(self, volume):
        """Return a volume as Cinder shows it to an administrator."""
        return instances.row(self.lab, volume)

    def force_detach(self, attached):
        """Force a detach without a connector, as an operator's tool does.

        Cinder demands a service token.
        """
        self.act(attached.volume_id, 'os-force_detach',
                 instances.as_nova(self.lab, 'admin'),
                 attachment_id=attached.id).raise_for_status()

    def fill(self, attached, mib=CHECKED):
        """Write random data to a volume's beginning; return its checksum."""
        attached.node.run('dd if=/dev/urandom of=%s bs=1M count=%d '
                          'oflag=direct conv=fsync status=none' % (
                              attached.path, mib), timeout=120)
        return self.checksum(attached, mib)

    def checksum(self, attached, mib=CHECKED):
        return self.sum_at(attached.node, attached.path, mib)

    def sum_at(self, node, path, mib):
        """Return the checksum of the beginning of any device."""
        return instances.checksum(node, path, mib)

    def late_part(self, attached):
        """Return the checksum of the late part of a :meth:`moving_volume`."""
        return instances.checksum(attached.node, attached.path, CHECKED,
                                  first_mib=OCCUPIED - 2 * CHECKED)

    def moving_volume(self, mib=CHECKED, volume_type='localclone'):
        """Create a volume with data, attached on node2 and not yet copied.

        The copy is held back, so that what a test does falls into it.
        """
        volume = self.volume(volume_type=volume_type)
        attached = self.instance.attach(volume, self.n1)
        instances.occupy(self.n1, attached.path, OCCUPIED)
        expected = self.fill(attached, mib)
        self.late[volume] = self.late_part(attached)
        attached.detach()
        self.brake(BRAKE)
        self.addCleanup(self.brake)
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(1, len(observe.move_records(self.lab)))
        return volume, attached, expected

    def brake(self, rate=None):
        """Slow the link of the source down; None: to full speed."""
        if not self.n1.is_on:
            return
        if rate:
            self.n1.slow_down(rate)
        else:
            self.n1.netem()

    def assert_moved(self, volume, attached, expected, mib=CHECKED):
        """Check that a move ends, the data is right, the source is gone."""
        self.brake()
        observe.wait_moved(self.lab, volume)
        self.assertEqual(expected, self.checksum(attached, mib))
        if volume in self.late:
            self.assertEqual(self.late[volume], self.late_part(attached))
        self.assertEqual([], observe.leftovers(self.n1, volume))
        self.assertEqual([], observe.leftovers(self.n2, None))
        self.assertEqual([], observe.volume_lvs(self.n1))
        self.assertEqual(1, len(observe.volume_lvs(self.n2)))
        self.assertEqual('node2', instances.home(self.lab, volume))

    def refused(self, volume, node=None, connector=None):
        """Request a connection, which must be refused.

        :returns: the error's text and what the owner is told
        """
        connector = connector or self.instance.connector(node or self.n2)
        attachment = self.instance.reserve(volume)
        answer = self.instance.connect(attachment, connector)
        self.instance.nova.delete('/attachments/' + attachment)
        self.assertGreaterEqual(answer.status_code, 400, answer.text)
        return answer.text, self.told(volume)

    def told(self, volume):
        return told(self.lab, volume)

    def assert_untouched(self, volume, expected=None):
        """Check that a refusal leaves nothing and the volume is usable."""
        process.wait_for('the shadow to go',
                         lambda: not observe.move_records(self.lab), 60)
        self.assertEqual([], observe.leftovers(self.n1, None))
        self.assertEqual([], observe.leftovers(self.n2, volume))
        self.assertEqual([], observe.volume_lvs(self.n2))
        self.assertEqual('node1', instances.home(self.lab, volume))
        attached = self.instance.attach(volume, self.n1)
        if expected:
            self.assertEqual(expected, self.checksum(attached))
        attached.detach()

    def restart(self, node, action='restart'):
        """Restart a volume service, and wait until it is ready."""
        node.service(action)
        if action == 'kill':
            node.service('start')
        node.wait_service()
        time.sleep(1)
