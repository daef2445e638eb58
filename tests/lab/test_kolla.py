# SPDX-License-Identifier: Apache-2.0
"""The files for kolla and kolla-ansible that the installation page shows."""

import ast
import configparser
import importlib
import os
import pathlib
import re

import jinja2
import testtools
import yaml

from cinder_localclone.cmd.doctor import container as doctor
from cinder_localclone.service import options
from lab.container import container

REPO = pathlib.Path(__file__).resolve().parents[2]
FILES = REPO / 'doc/source/install/kolla'
#: Of cinder_volume (ansible/roles/cinder/defaults/main.yml of kolla-ansible).
KOLLA_MOUNTS = ('/var/lib/kolla/config_files', '/dev', '/lib/modules', '/run',
                '/var/lib/cinder', '/etc/iscsi', '/var/log/kolla')


class KollaTest(testtools.TestCase):

    def read(self, name):
        return (FILES / name).read_text()

    def test_the_page_shows_every_file(self):
        page = (FILES.parent / 'kolla.rst').read_text()
        self.assertEqual(
            {each.name for each in FILES.iterdir()},
            set(re.findall(r'literalinclude:: kolla/(\S+)', page)))

    def test_the_backend_is_one_of_this_driver(self):
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
        # kolla-ansible's: the address of this node in a network.
        environment.filters['kolla_address'] = {'storage': '192.0.2.11'}.get
        conf = configparser.ConfigParser()
        conf.read_string(environment.from_string(self.read(
            'cinder-volume.conf')).render(
                cinder_volume_group='group', localclone_keys_password='x',
                keystone_internal_url='http://192.0.2.1:5000'))
        backend = conf[conf['DEFAULT']['enabled_backends']]
        self.assertEqual(('192.0.2.11', 'group'), (
            backend['target_ip_address'], backend['volume_group']))
        module, _, name = backend['volume_driver'].rpartition('.')
        self.assertTrue(getattr(importlib.import_module(module), name))
        self.assertEqual('http://192.0.2.1:5000/v3',
                         conf['key_manager']['auth_url'])
        known = {each.dest for each in options.localclone_opts}
        mounted = [each.split(':')[1] for each in self.volumes()]
        for option, path in backend.items():
            if option.startswith('localclone_'):
                self.assertIn(option, known)
            if option.endswith('_dir'):  # it outlives the container
                self.assertTrue([each for each in mounted if (
                    path + '/').startswith(each + '/')], path)

    def test_the_api_keeps_cinders_extensions(self):
        self.assertEqual([
            'cinder.api.contrib.standard_extensions',
            'cinder_localclone.service.messages.load'], re.findall(
                '(?m)^osapi_volume_extension = (.*)$',
                self.read('cinder-api.conf')))

    def volumes(self):
        return yaml.safe_load(self.read('globals.yml'))[
            'cinder_volume_extra_volumes']

    def test_globals(self):
        found = yaml.safe_load(self.read('globals.yml'))
        for each in ('skip_cinder_backend_check',
                     'cinder_cluster_skip_precheck'):
            self.assertTrue(found[each], each)
        # The driver does not start in a cluster, nor without iscsid.
        self.assertNotIn('cinder_cluster_name', found)
        self.assertIn("groups['compute']", found['enable_iscsid_for_cinder'])
        # What the lab runs, and what the doctor demands.
        self.assertEqual(list(container.VOLUMES), self.volumes())
        mounts = dict.fromkeys([*KOLLA_MOUNTS, *(
            each.split(':')[1] for each in self.volumes())], 'ext4')
        mounts['/dev'] = 'devtmpfs'
        mounts[os.path.realpath('/lib/modules')] = 'ext4'
        found = doctor.Container(frozenset(), mounts)
        self.assertEqual(['OK'], [
            each.verdict for each in doctor.namespaces(found)])
        self.assertEqual([], doctor.credentials(found))
        self.assertEqual([], doctor.lvm_filter(found))
        self.assertIn('/etc/udev/rules.d', doctor.rule_directories(found))

    def test_the_scheduler_loads_the_filter(self):
        conf = configparser.ConfigParser(strict=False)
        conf.read_string(self.read('nova-scheduler.conf'))
        found = conf['filter_scheduler']
        module, _, name = found['available_filters'].rpartition('.')
        tree = ast.parse((REPO / (module.replace('.', '/') + '.py')
                          ).read_text())
        classes = {each.name for each in tree.body
                   if isinstance(each, ast.ClassDef)}
        self.assertIn(name, classes)
        self.assertIn(name, found['enabled_filters'].split(','))
        self.assertIn(found['weight_classes'].rpartition('.')[2], classes)

    def test_units(self):
        """Each is like the unit of a node without containers."""
        for unit in ('restore', 'unlock', 'metrics'):
            name = 'cinder-localclone-%s.service' % unit
            theirs = self.unit(FILES / name)
            ours = self.unit(REPO / 'etc/systemd' / name)
            prefix, _, words = theirs['ExecStart'].partition(
                '/usr/local/sbin/cinder-localclone-image ')
            self.assertEqual(
                ours['ExecStart'], '%s/usr/bin/env cinder-localclone %s' % (
                    prefix, words))
            for each in ('Type', 'TimeoutStartSec', 'Restart', 'WantedBy'):
                self.assertEqual(ours.get(each), theirs.get(each))
            # kolla-<container>-container.service, of kolla_systemd_worker.
            if unit != 'metrics':
                self.assertIn('kolla-nova_compute-container.service',
                              theirs['Before'].split())

    def unit(self, path):
        lines = path.read_text().splitlines()
        return dict(line.split('=', 1) for line in lines
                    if '=' in line and not line.startswith('#'))

    def test_metrics_of_each_node(self):
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
        environment.filters['kolla_address'] = (
            lambda network, host: {'a': '192.0.2.11', 'b': '192.0.2.12'}[host])
        found = yaml.safe_load(environment.from_string(self.read(
            'prometheus.yml')).render(groups={'cinder-volume': ['a', 'b']}))
        self.assertEqual(['192.0.2.11:9837', '192.0.2.12:9837'], found[
            'scrape_configs'][0]['static_configs'][0]['targets'])

    def test_images_get_the_driver_and_one_the_filter(self):
        conf = configparser.ConfigParser()
        conf.read_string(self.read('kolla-build.conf'))
        blocks = re.findall(r'block (\w+)_footer',
                            self.read('template-override.j2'))
        self.assertEqual(['%s-plugin-localclone' % each.replace('_', '-')
                          for each in blocks], conf.sections())
        path = re.search(r'/plugins/\*/(\S+\.filters)',
                         self.read('template-override.j2')).group(1)
        self.assertTrue((REPO / path).exists())
