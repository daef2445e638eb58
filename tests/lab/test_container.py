# SPDX-License-Identifier: Apache-2.0
"""Services in containers; no container is made here."""

import configparser
import pathlib
import types

import fixtures
import testtools

from lab.container import conf
from lab.container import container
from lab.core import config
from lab.core import process
from lab import lab as labs

VENV = pathlib.Path('/cache/venv')


class ConfTest(testtools.TestCase):

    def test_no_path_of_the_node_is_left(self):
        text = conf.inside(config.cinder_volume(
            'node1', '192.0.2.11', VENV, pathlib.Path('/lab/lc.conf'),
            'localclone', {'localclone_interval': 2}), VENV)
        for path in (str(VENV), '/lab', '/run/cinder', 'helper_command'):
            self.assertNotIn(path, text)
        found = configparser.ConfigParser()
        found.read_string(text)
        self.assertEqual('/etc/cinder/rootwrap.conf',
                         found['DEFAULT']['rootwrap_config'])
        self.assertEqual('/var/lib/cinder', found['DEFAULT']['state_path'])
        self.assertEqual('2', found['localclone']['localclone_interval'])


class ContainerTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.ran = []
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (directory / 'localclone.conf').write_text('[DEFAULT]\n')
        self.code = 0
        self.node = types.SimpleNamespace(
            name='node1', directory=directory, run=self.run_in_node,
            lab=types.SimpleNamespace(
                venv=VENV, repo=pathlib.Path('/repo'), logs=directory,
                settings={'native_threads': False}))
        self.container = container.Container(self.node)

    def run_in_node(self, command, **_how):
        self.ran.append(command if isinstance(command, str) else ' '.join(
            str(word) for word in command))
        return types.SimpleNamespace(returncode=self.code)

    def test_command_runs_in_it_or_in_one_of_its_own(self):
        for code, words in ((0, 'exec $(cat /run/cinder-localclone.pid) '
                                'cinder-localclone node list'),
                            (1, 'cinder-localclone-image node list')):
            self.code, self.ran = code, []
            self.container.operator('node', 'list')
            self.assertTrue(self.ran[-1].endswith(words), self.ran)

    def test_upgrade_has_another_image(self):
        first = self.container.image
        self.container.upgrade()
        self.assertNotEqual(first, self.container.image)
        self.assertTrue(self.ran[-1].endswith('remove ' + first), self.ran)
        self.assertTrue([each for each in self.ran if
                         'IMAGE=%s ' % self.container.image in each])

    def test_none_to_kill(self):
        self.code = 1
        self.assertRaises(process.LabError, self.container.kill)

    def test_all_services_of_a_lab(self):
        self.useFixture(fixtures.MockPatchObject(
            labs, 'STATE', self.node.directory))
        lab = labs.Lab('x')
        self.assertIsNone(lab.nodes['node1'].container)
        lab.settings['containers'] = True
        self.assertEqual({'node1', 'node2'}, {
            each.container.node.name for each in lab._make_nodes().values()})
