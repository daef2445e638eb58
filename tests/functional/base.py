# SPDX-License-Identifier: Apache-2.0
"""One lab for all functional tests of a run."""

import atexit
import os
import time

import testtools

from lab.core import instance as instances
from lab.core import look
from lab.core import process
from lab import Lab


#: MiBs of a volume of 1 GiB that have data, so that copying it takes a while.
#: The rest is a hole, which no move copies.
OCCUPIED = 768
#: Of the driver, so that tests wait less: more is copied beside a guest that
#: writes, and moves are checked more often. What must be seen while a
#: volume moves is held back by its link (:meth:`LabTest.brake`), which copies
#: at the same speed with any options.
QUICK = {'localclone_hydration_batch': 64,
         'localclone_hydration_threshold': 256,
         'localclone_move_interval': 2,
         'localclone_compare_timeout': 10,
         'localclone_online_extend': True}


def _say(text):
    # By the number in the names of this process's labs: others run beside.
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


_failures = []
#: Labs that are up, by name; instead of one that did not come up, why.
_labs = {}


def shared_lab(name='test', options=QUICK, nodes=2, **parts):
    """A lab of this process; $LOCALCLONE_TEST_LAB names one that is up.

    :param options: of its backends, besides the lab's own; others than usual
        need a lab by another name
    :param nodes: how many it has; the same is true of these
    :param parts: of a lab (nova, keys) that it has; and of these
    """
    if name not in _labs:
        given = os.environ.get('LOCALCLONE_TEST_LAB') if (
            options == QUICK and nodes == 2) else None
        if given and not parts.items() <= Lab(given).settings.items():
            given = None
        lab = Lab(given or '%s%d' % (name, os.getpid()))
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


def end_lab(name):
    """Take down what :func:`shared_lab` has brought up."""
    lab = _labs.pop(name, None)
    if lab and not isinstance(lab, process.LabError):
        take_down(lab)


def messages(lab, volume):
    """All that the owner of a volume was told: (when, text), newest first.

    Cinder keeps whole seconds, and sorts those of one second by chance.
    """
    found = lab.cinder('demo').get('/messages').json()['messages']
    return [(message['created_at'], message['user_message'])
            for message in found if message['resource_uuid'] == volume]


def told(lab, volume):
    """What the owner was told in the newest second; '' if nothing was."""
    found = messages(lab, volume)
    return '\n'.join(text for when, text in found if when == found[0][0])


class LabTest(testtools.TestCase):

    #: Which lab; and the options of its backends, besides the lab's own.
    lab_name = 'test'
    options = QUICK
    nodes = 2
    #: Parts of a lab that not every lab has.
    parts: dict = {}
    #: Whether nobody else uses that lab: it is taken down with the class.
    ends_lab = False

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        if cls.ends_lab:
            end_lab(cls.lab_name)

    def setUp(self):
        super().setUp()
        self.addOnException(note_failure)
        self.lab = shared_lab(self.lab_name, self.options, self.nodes,
                              **self.parts)
        self.n1 = self.lab.nodes['node1']
        self.n2 = self.lab.nodes['node2']
        self.demo = self.lab.cinder('demo')
        self.instance = instances.Instance(self.lab)
        self.addCleanup(self.mend)

    def wait_two_checks(self):
        """What the periodic checks have not done by then, they don't."""
        options = dict({'localclone_move_interval': 5},
                       **self.lab.settings['options'])
        time.sleep(2 * float(options['localclone_move_interval']) + 1)

    def mend(self):
        """Leave the lab as it was found, whatever a test did to it."""
        for node in self.lab.nodes.values():
            node.network_heal()
            if not node.is_on:
                node.power_on()
            # A guest of a test that failed would keep its volume busy.
            instances.stop_writing(node)
            if not node.serves:
                node.service('start')
        self.brake()
        self.lab.wait_for_services()
        nova = self.lab.cinder('nova')
        for found in nova.get('/attachments').json()['attachments']:
            nova.delete('/attachments/' + found['id'])
        for volume in self.demo.get('/volumes/detail').json()['volumes']:
            if volume['status'] not in ('available', 'deleting'):
                instances.reset(self.lab, volume['id'])
            self.demo.delete('/volumes/' + volume['id'])
        look.wait_deleted(self.lab, 150)

    def volume(self, size=1, node='node1', volume_type='localclone'):
        return instances.create_volume(self.demo, size, volume_type,
                                       node=node)

    def act(self, volume, action, client=None, **how):
        """Ask for an action on a volume; the answer, unchecked.

        :param client: of the API; None: the administrator's
        """
        return (client or self.lab.cinder()).post(
            '/volumes/%s/action' % volume, json={action: how})

    def row(self, volume):
        """A volume as the administrator sees it."""
        return self.lab.cinder().get('/volumes/' + volume).json()['volume']

    def force_detach(self, attached):
        """As an operator's tool does that knows no connector.

        Cinder refuses it to whoever is no service.
        """
        self.act(attached.volume_id, 'os-force_detach',
                 instances.as_nova(self.lab, 'admin'),
                 attachment_id=attached.id).raise_for_status()

    def fill(self, attached, mib=96):
        """Random data at the beginning of a volume; its checksum."""
        attached.node.run('dd if=/dev/urandom of=%s bs=1M count=%d '
                          'oflag=direct conv=fsync status=none' % (
                              attached.path, mib), timeout=120)
        return self.checksum(attached, mib)

    def checksum(self, attached, mib=96):
        return self.sum_at(attached.node, attached.path, mib)

    def sum_at(self, node, path, mib):
        """The checksum of the beginning of any device."""
        return node.run(
            'dd if=%s bs=1M count=%d iflag=direct status=none | sha256sum'
            % (path, mib), timeout=300).stdout

    def moving_volume(self, mib=96, volume_type='localclone'):
        """A volume with data, attached on node2 and still being copied.

        The copy is held back, so that what a test does falls into it.
        """
        volume = self.volume(volume_type=volume_type)
        attached = self.instance.attach(volume, self.n1)
        instances.occupy(self.n1, attached.path, OCCUPIED)
        expected = self.fill(attached, mib)
        attached.detach()
        self.brake('60mbit')
        self.addCleanup(self.brake)
        attached = self.instance.attach(volume, self.n2)
        self.assertEqual(1, len(look.shadows(self.lab)))
        return volume, attached, expected

    def brake(self, rate=None):
        """Slow the link of the source down; None: no more."""
        if not self.n1.is_on:
            return
        if rate:
            self.n1.slow_down(rate)
        else:
            self.n1.netem()

    def assert_moved(self, volume, attached, expected, mib=96):
        """The move ends; the data is right; the source is gone."""
        self.brake()
        look.wait_moved(self.lab, volume)
        self.assertEqual(expected, self.checksum(attached, mib))
        self.assertEqual([], look.leftovers(self.n1, volume))
        self.assertEqual([], look.leftovers(self.n2, None))
        self.assertEqual([], look.volume_lvs(self.n1))
        self.assertEqual(1, len(look.volume_lvs(self.n2)))
        self.assertEqual('node2', instances.home(self.lab, volume))

    def refused(self, volume, node=None, connector=None):
        """Ask for a connection that must be refused.

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
        """After a refusal nothing is left, and the volume can be used."""
        process.wait_for('the shadow to go',
                         lambda: not look.shadows(self.lab), 60)
        self.assertEqual([], look.leftovers(self.n1, None))
        self.assertEqual([], look.leftovers(self.n2, volume))
        self.assertEqual([], look.volume_lvs(self.n2))
        self.assertEqual('node1', instances.home(self.lab, volume))
        attached = self.instance.attach(volume, self.n1)
        if expected:
            self.assertEqual(expected, self.checksum(attached))
        attached.detach()

    def restart(self, node, action='restart'):
        """Restart a volume service and wait until it serves again."""
        node.service(action)
        if action == 'kill':
            node.service('start')
        node.wait_service()
        time.sleep(1)
