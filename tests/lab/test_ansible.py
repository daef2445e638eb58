# SPDX-License-Identifier: Apache-2.0
"""The Ansible role; where there is Ansible, on a machine that is a directory.
"""

import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys

import testtools
import yaml

from lab.core import config
from tests.lab.devstack import machine

ROLE = machine.REPO / 'ansible/roles/cinder_localclone'
#: Where Ansible is: beside the interpreter, or wherever a shell finds it.
PLAYBOOK = shutil.which('ansible-playbook', path='%s:%s' % (
    pathlib.Path(sys.executable).parent, os.environ.get('PATH', '')))
#: Inventories: one host; two that are the same machine.
HOSTS = ('[hypervisors]\nnode1\n',
         '[hypervisors]\n'
         'a localclone_storage_address=192.0.2.11 localclone_group=va\n'
         'b.x localclone_storage_address=192.0.2.12 localclone_group=vb\n')


class RoleTest(testtools.TestCase):

    defaults = yaml.safe_load((ROLE / 'defaults/main.yml').read_text())
    tasks = [each for name in ('main', 'link') for task in yaml.safe_load(
        (ROLE / 'tasks' / (name + '.yml')).read_text())
        for each in task.get('block', [task])]

    def test_every_variable_has_a_default_and_is_used(self):
        text = ''.join(path.read_text() for path in ROLE.rglob('*')
                       if path.is_file() and 'defaults' not in path.parts)
        results = {task['register'] for task in self.tasks
                   if 'register' in task}
        for task in self.tasks:
            results |= set(task.get('ansible.builtin.set_fact', ()))
            results |= {name for name in task.get('vars', ())
                        if name.startswith('localclone_')}
        used = set(re.findall(r'\blocalclone_\w+', text))
        used |= set(re.findall(r'\{\{ (localclone_\w+)', str(self.defaults)))
        self.assertEqual(set(self.defaults), used - results)

    def test_what_it_copies_is_there(self):
        sources = [task['ansible.builtin.copy']['src'] for task in self.tasks
                   if 'src' in task.get('ansible.builtin.copy', {})]
        sources.remove('{{ localclone_clone_package }}')
        self.assertEqual(3, len(sources))
        for source in sources:
            for unit in ('restore', 'unlock'):
                path = source.replace('{{ role_path }}', str(ROLE)).replace(
                    '{{ item }}', unit)
                self.assertTrue(pathlib.Path(path).exists(), path)

    def test_no_run_shows_the_secrets_of_cinder_conf(self):
        """With --diff Ansible prints what is around a change."""
        for task in self.tasks:
            if 'localclone_cinder_conf' in str(task):
                self.assertIs(False, task.get('diff'), task['name'])

    def test_a_rejected_module_names_its_reason(self):
        task, = [each for each in self.tasks if 'fail_msg' in each.get(
            'ansible.builtin.assert', {}) and 'dm-clone' in each['name']]
        text = task['ansible.builtin.assert']['fail_msg']
        order = [text.index(each) for each in (
            'localclone_clone_built.stderr', 'localclone_clone_status.stdout',
            'localclone_how_to.stdout')]
        self.assertEqual(sorted(order), order)
        asked, = [each for each in self.tasks if each.get(
            'register') == 'localclone_clone_status']
        self.assertEqual('cinder-localclone-dkms',
                         asked['ansible.builtin.command'])
        self.assertIs(False, asked['failed_when'])

    def test_clear_text_is_blocked_after_the_connections_are_loaded(self):
        """Also if a later task fails: handlers then do not run any more."""
        names = [each['name'] for each in self.tasks]
        started = names.index('Start strongSwan')
        self.assertEqual('flush_handlers', self.tasks[started + 1].get(
            'ansible.builtin.meta'))
        self.assertGreater(names.index('Block clear text from now on'),
                           started + 1)
        handlers = {each['name']: each for each in yaml.safe_load(
            (ROLE / 'handlers/main.yml').read_text())}
        self.assertEqual(['Load strongSwan\'s connections',
                          'Load the policies that block clear text'],
                         [each for each in handlers if 'Load ' in each
                          and 'Reload' not in each])
        self.assertIn('localclone_link_required | bool and ', handlers[
            'Load the policies that block clear text']['when'])

    def test_every_handler_is_there(self):
        handlers = {each['name'] for each in yaml.safe_load(
            (ROLE / 'handlers/main.yml').read_text())}
        self.assertEqual(handlers, {
            each for task in self.tasks if 'notify' in task
            for each in ([task['notify']] if isinstance(
                task['notify'], str) else task['notify'])})


class Plays:
    """What ansible-playbook makes of a machine; see PlaybookTest below."""

    def setUp(self):
        super().setUp()
        self.machine = self.useFixture(machine.Machine('functions'))
        self.machine.write('hosts', HOSTS[0])
        for name in ('udev/rules.d', 'modules-load.d', 'cinder/rootwrap.d'):
            (self.machine.path / 'etc' / name).mkdir(parents=True)
        self.machine.write('etc/cinder/cinder.conf', (
            '[DEFAULT]\nhost = node1\n\n[database]\nconnection = x\n'))

    def play(self, *options, **variables):
        """What ansible-playbook said, and how many tasks changed something."""
        etc = self.machine.path / 'etc'
        variables = {
            'ansible_connection': 'local', 'ansible_become': 'false',
            'ansible_python_interpreter': sys.executable,
            'localclone_devices': '["/dev/vdb"]',
            'localclone_storage_address': '192.0.2.11',
            'localclone_install_packages': 'false',
            'localclone_enable_units': 'false',
            'localclone_cinder_conf': etc / 'cinder/cinder.conf',
            'localclone_rootwrap_directory': etc / 'cinder/rootwrap.d',
            'localclone_udev_directory': etc / 'udev/rules.d',
            'localclone_unit_directory': etc / 'systemd/system',
            'localclone_modules_directory': etc / 'modules-load.d',
            'localclone_lvm_directory': etc / 'lvm', **variables}
        variables = {name: value for name, value in variables.items()
                     if value is not None}  # those are in the inventory
        done = subprocess.run(
            [PLAYBOOK, '-i', self.machine.path / 'hosts',
             machine.REPO / 'ansible/localclone.yml', *options,
             *[word for name, value in variables.items()
               for word in ('-e', '{"%s": %s}' % (
                   name, value if str(value)[0] in '[{' or value in (
                       'true', 'false') else '"%s"' % value))]],
            env=dict(self.machine.environment, LC_ALL='C.UTF-8',
                     ANSIBLE_LOCAL_TEMP=str(self.machine.path / 'tmp'),
                     ANSIBLE_REMOTE_TEMP=str(self.machine.path / 'tmp'),
                     ANSIBLE_NOCOLOR='1'),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self.machine.path, timeout=300)
        self.assertEqual('', self.machine.read('outside'))
        counted = re.findall(r'changed=(\d+) .*failed=(\d+)', done.stdout)
        self.assertTrue(counted, done.stdout)
        return done.stdout, *(sum(map(int, each)) for each in zip(*counted))

    def test_a_node_is_made_ready_and_then_left_alone(self):
        printed, changed, failed = self.play(
            localclone_lvm_devices='["/dev/vda3", "/dev/vdb"]',
            localclone_options='{"localclone_max_copies_in": 3}')
        self.assertEqual(0, failed, printed)
        self.assertTrue(changed)
        self.assertEqual({'cinder-volumes': {'cinder-volumes-pool'}},
                         self.machine.volume_groups)
        self.assertIn(
            '\n# BEGIN cinder-localclone\n[localclone]\n'
            'volume_driver = cinder_localclone.driver.LocalCloneDriver\n'
            'volume_backend_name = localclone\n'
            'volume_group = cinder-volumes\nlvm_type = thin\n'
            'target_ip_address = 192.0.2.11\nlocalclone_max_copies_in = 3\n'
            '# END cinder-localclone\n',
            self.machine.read('etc/cinder/cinder.conf'))
        self.assertTrue(self.machine.read('etc/cinder/cinder.conf').startswith(
            '[DEFAULT]\nenabled_backends = localclone\n'))
        self.assertIn(
            'global_filter = [ "a|^/dev/vda3$|", "a|^/dev/vdb$|", "r|.*|" ]',
            self.machine.read('etc/lvm/lvmlocal.conf'))
        for name in ('udev/rules.d/11-localclone.rules',
                     'cinder/rootwrap.d/localclone.filters'):
            self.assertEqual((machine.REPO / 'etc' / name).read_text(),
                             self.machine.read('etc/' + name))
        self.assertIn(
            'ExecStart=/opt/cinder/bin/cinder-localclone --backend localclone '
            'node restore\n', self.machine.read(
                'etc/systemd/system/cinder-localclone-restore.service.d/'
                'command.conf'))
        printed, changed, failed = self.play(
            localclone_lvm_devices='["/dev/vda3", "/dev/vdb"]',
            localclone_options='{"localclone_max_copies_in": 3}')
        self.assertEqual((0, 0), (changed, failed), printed)

    def test_a_kernel_without_dm_clone(self):
        self.machine.write('no-modules', 'dm-clone\n')
        printed, _changed, failed = self.play()
        self.assertEqual(1, failed, printed)
        self.assertIn('has no dm-clone, so no volume can move to this host. ',
                      ' '.join(printed.split()))
        self.assertEqual({}, self.machine.volume_groups)
        # Its package, if it is there, knows better.
        self.machine.write('bin/cinder-localclone-dkms', (
            '#!/bin/sh\necho MISSING the key is not enrolled\nexit 1\n'))
        (self.machine.path / 'bin/cinder-localclone-dkms').chmod(0o755)
        printed, _changed, failed = self.play()
        self.assertEqual(1, failed, printed)
        self.assertIn('MISSING the key is not enrolled', printed)
        printed, _changed, failed = self.play(
            localclone_require_clone='false')
        self.assertEqual(0, failed, printed)
        self.assertNotIn('dm-clone', self.machine.read(
            'etc/modules-load.d/cinder-localclone.conf'))

    def test_a_package_brings_dm_clone(self):
        self.machine.write('no-modules', 'dm-clone\n')
        self.machine.write('brings', 'there/clone.deb\n')
        self.machine.write('clone.deb', 'x')
        (self.machine.path / 'there').mkdir()
        printed, _changed, failed = self.play(
            localclone_clone_package=self.machine.path / 'clone.deb',
            localclone_clone_directory=self.machine.path / 'there')
        self.assertEqual(0, failed, printed)
        self.assertEqual('x', self.machine.read('there/clone.deb'))
        self.assertIn('dm-clone', self.machine.read(
            'etc/modules-load.d/cinder-localclone.conf'))

    def test_ipsec_between_the_hosts(self):
        """Each gets the public keys of all, and keeps its own to itself."""
        self.machine.write('hosts', HOSTS[1])
        own = str(self.machine.path / 'link/{{ inventory_hostname }}')
        asked = {'localclone_link': 'ipsec', 'localclone_link_esp': 'aes-x',
                 'localclone_storage_address': None,
                 'localclone_link_directory': own,
                 'localclone_link_policies': own + '/policies'}
        printed, _changed, failed = self.play('--limit', 'b.x', **asked)
        self.assertEqual(1, failed, printed)
        self.assertIn('without --limit', ' '.join(printed.split()))
        self.assertFalse((self.machine.path / 'link/b.x/policies').exists())
        printed, changed, failed = self.play(**asked)
        self.assertEqual((True, 0), (changed > 0, failed), printed)
        link = self.machine.path / 'link'
        keys = {}
        for host, address, peer, other in (
                ('a', '192.0.2.11', 'b_x', '192.0.2.12'),
                ('b.x', '192.0.2.12', 'a', '192.0.2.11')):
            private = link / host / 'private/localclone.pem'
            self.assertEqual(0o600, private.stat().st_mode & 0o777)
            keys[host] = {path.name: path.read_text() for path in (
                link / host / 'pubkey').iterdir()}
            self.assertEqual({'localclone-a.pem', 'localclone-b.x.pem'},
                             set(keys[host]))
            conf = (link / host / 'conf.d/localclone.conf').read_text()
            self.assertEqual(1, conf.count('remote_addrs'), conf)
            for line in ('localclone-%s {' % peer,
                         'local_addrs = ' + address,
                         'remote_addrs = ' + other,
                         'pubkeys = localclone-%s.pem' % host,
                         'localclone-%s-exports {' % peer,
                         'local_ts = dynamic[tcp/3260]',
                         'remote_ts = dynamic[tcp/3260]',
                         'esp_proposals = aes-x'):
                self.assertIn('\n%s\n' % line, re.sub('\n +', '\n', conf))
            policies = (link / host / 'policies').read_text()
            self.assertIn('xfrm policy update src 0.0.0.0/0 dst %s proto tcp '
                          'dport 3260 dir out action block' % other, policies)
            self.assertEqual(4, policies.count('action block'), policies)
        self.assertEqual(keys['a'], keys['b.x'])
        self.assertEqual(2, len(set(keys['a'].values())))
        self.assertIn('/policies', self.machine.read(
            'etc/systemd/system/cinder-localclone-link.service'))
        self.assertIn('After=strongswan.service\n', self.machine.read(
            'etc/systemd/system/cinder-localclone-restore.service.d/'
            'command.conf'))
        printed, changed, failed = self.play(**asked)
        self.assertEqual(0, failed, printed)
        self.assertNotIn('changed: [a] => (item=', printed)


if PLAYBOOK:

    class PlaybookTest(Plays, testtools.TestCase):
        pass


class LabTest(testtools.TestCase):

    def test_the_node_begins_without_a_backend(self):
        conf = configparser.RawConfigParser(strict=False)
        conf.read_string(config.cinder_before_driver(
            'node1', '192.0.2.11', pathlib.Path('/venv'), helpers_of='/x'))
        self.assertNotIn('localclone', conf.sections())
        self.assertNotIn('enabled_backends', conf['DEFAULT'])
        self.assertEqual('node1', conf['DEFAULT']['host'])
        self.assertIn('localclone_privileged', conf.sections())

    def test_the_page_begins_with_rootwrap(self):
        conf = configparser.RawConfigParser(strict=False)
        conf.read_string(config.cinder_before_driver(
            'node1', '192.0.2.11', pathlib.Path('/venv'), rootwrap='/r'))
        self.assertEqual('/r', conf['DEFAULT']['rootwrap_config'])
        self.assertNotIn('localclone_privileged', conf.sections())
