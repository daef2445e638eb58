# SPDX-License-Identifier: Apache-2.0
"""What is said of the DevStack plugin: its page, the jobs, the lab's command.
"""

import argparse
import pathlib
import re

import fixtures
import testtools
import yaml

from lab.install import checkout

REPO = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = (REPO / 'devstack/settings').read_text()
README = (REPO / 'devstack/README.rst').read_text()
JOBS = (REPO / '.zuul.yaml').read_text()
VARIABLES = set(re.findall(r'(?m)^(LOCALCLONE_\w+)=', SETTINGS))
#: Where the plugin puts things: for tests, not for users.
PLACES = re.compile('.*_DIR|.*_(INITIATOR|IQN|TARGET_PORT|TARGET_PREFIX)')


class PageTest(testtools.TestCase):

    def test_all_variables_are_there_and_no_others(self):
        told = set(re.findall(r'\bLOCALCLONE_\w+', README))
        self.assertEqual(set(), told - VARIABLES)
        self.assertEqual(set(), {
            name for name in VARIABLES - told if not PLACES.fullmatch(name)})

    def test_what_local_conf_says_wins(self):
        for name in VARIABLES - {'LOCALCLONE_DIR', 'LOCALCLONE_IQN'}:
            self.assertRegex(SETTINGS, r'(?m)^%s=(\$\{%s:-|\$\(trueorfalse '
                             r'\w+ %s\)$)' % (name, name, name))

    def test_examples_are_sections_of_local_conf(self):
        examples = checkout.examples(README)
        self.assertEqual(6, len(examples))
        for each in examples[:-1]:
            self.assertTrue(each.startswith('[[local|localrc]]\n'), each)
        self.assertTrue(examples[-1].startswith('[[post-config|$CINDER_CONF'))


class JobsTest(testtools.TestCase):

    jobs = {each['job']['name']: each['job']
            for each in yaml.safe_load(JOBS) if 'job' in each}

    def test_variables_are_there(self):
        self.assertEqual(set(), set(re.findall(
            r'LOCALCLONE_\w+', JOBS)) - VARIABLES)

    def test_a_subnode_gets_the_same_backend(self):
        job = self.jobs['cinder-localclone-tempest-multinode']
        subnode = job['group-vars']['subnode']['devstack_localrc']
        for name, value in job['vars']['devstack_localrc'].items():
            self.assertEqual(value, subnode[name])

    def test_every_job_of_the_project_is_defined_or_openstacks(self):
        project = next(each['project'] for each in yaml.safe_load(JOBS)
                       if 'project' in each)
        for pipeline in ('check', 'gate'):
            for name in project[pipeline]['jobs']:
                self.assertTrue(name in self.jobs
                                or name.startswith('openstack-tox-'), name)


class CheckoutTest(testtools.TestCase):

    def test_without_one_it_says_what_to_set(self):
        empty = self.useFixture(fixtures.TempDir()).path
        for text in ('', empty, '/nonexistent/devstack'):
            exc = self.assertRaises(argparse.ArgumentTypeError,
                                    checkout.directory, text)
            self.assertIn('make devstack DEVSTACK=DIR', str(exc))
            self.assertIn(text, str(exc))

    def test_what_is_needed_is_copied(self):
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('inc/python', 'lib/lvm', 'files/x', 'extras.d/y',
                     'functions', 'functions-common', 'stackrc', 'other'):
            (top / 'from' / name).parent.mkdir(parents=True, exist_ok=True)
            (top / 'from' / name).write_text(name)
        self.assertEqual(top / 'from', checkout.directory(top / 'from'))
        checkout.copy(top / 'from', top / 'to')
        self.assertEqual({'functions', 'functions-common', 'stackrc', 'inc',
                          'lib', 'files', 'extras.d'},
                         {each.name for each in (top / 'to').iterdir()})

    def test_local_conf_is_that_of_the_page(self):
        text = checkout.local_conf(
            README, url='file:///repo', address='192.0.2.11',
            dest='/run/stack', glance='http://g', more='MORE=1\n')
        self.assertTrue(text.startswith('[[local|localrc]]\n'))
        # enable_plugin takes DEST as it is by then.
        self.assertTrue(text.index('DEST=/run/stack\n') < text.index(
            'enable_plugin cinder-localclone file:///repo\n'))
        for line in ('ADMIN_PASSWORD=secret', 'HOST_IP=192.0.2.11', 'MORE=1',
                     'LOCALCLONE_BIN_DIR=/run/stack/local/bin'):
            self.assertIn('\n%s\n' % line, text)

    def test_what_clean_leaves_is_devstacks(self):
        for path, own in (('/etc/sudoers.d/cinder-rootwrap', True),
                          ('/etc/lvm/backup/x', True),
                          ('/etc/udev/rules.d/11-localclone.rules', False),
                          ('/etc/sudoers.d/other', False)):
            self.assertEqual(own, checkout.own(path))
