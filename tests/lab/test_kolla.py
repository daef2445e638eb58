# SPDX-License-Identifier: Apache-2.0
"""The files for kolla and kolla-ansible that the installation page shows."""

import configparser
import importlib
import pathlib
import re

import jinja2
import testtools
import yaml

REPO = pathlib.Path(__file__).resolve().parents[2]
FILES = REPO / 'doc/source/install/kolla'


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
            'cinder-volume.conf')).render(cinder_volume_group='group'))
        backend = conf[conf['DEFAULT']['enabled_backends']]
        self.assertEqual(('192.0.2.11', 'group'), (
            backend['target_ip_address'], backend['volume_group']))
        module, _, name = backend['volume_driver'].rpartition('.')
        self.assertTrue(getattr(importlib.import_module(module), name))

    def test_the_api_keeps_cinders_extensions(self):
        self.assertEqual([
            'cinder.api.contrib.standard_extensions',
            'cinder_localclone.service.messages.load'], re.findall(
                '(?m)^osapi_volume_extension = (.*)$',
                self.read('cinder-api.conf')))

    def test_globals(self):
        values = yaml.safe_load(self.read('globals.yml'))
        self.assertIn('/sys/kernel/config:/sys/kernel/config',
                      values['cinder_volume_extra_volumes'])
        self.assertTrue(values['skip_cinder_backend_check'])

    def test_both_images_get_the_driver_and_one_the_filter(self):
        conf = configparser.ConfigParser()
        conf.read_string(self.read('kolla-build.conf'))
        blocks = re.findall(r'block (\w+)_footer',
                            self.read('template-override.j2'))
        self.assertEqual(['%s-plugin-localclone' % each.replace('_', '-')
                          for each in blocks], conf.sections())
        path = re.search(r'/plugins/\*/(\S+\.filters)',
                         self.read('template-override.j2')).group(1)
        self.assertTrue((REPO / path).exists())
