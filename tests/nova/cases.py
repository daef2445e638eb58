# SPDX-License-Identifier: Apache-2.0
"""The filter and the weigher in Nova's own scheduler.

Not found by discovery: tests/unit/nova/test_placement.py runs them in a
process in which Cinder is not imported.
"""

import http.server
import json
import pathlib
import re
import sys
import textwrap
import threading
import urllib.parse

import fixtures
from keystoneauth1 import loading
import nova.conf
from nova import objects
from nova.scheduler import filters
from nova.scheduler import host_manager
from nova.scheduler import weights
from oslo_config import cfg
import testtools

from cinder_localclone.nova import scheduler
from lab.nova import config as lab_config

CONF = nova.conf.CONF
ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = 'cinder_localclone.nova.scheduler.'
SERVER = '9f0c8d1e-1d5e-4a36-9c0b-6f4ad3b1f2a7'
VOLUME = 'f6b1fd5b-8a0d-4c39-a6c0-1a4d0c3f3f0e'

objects.register_all()
CONF([], default_config_files=[])


class Cinder(http.server.BaseHTTPRequestHandler):
    """Keystone's and Cinder's answers; who asks for what is noted."""

    asked: list = []
    free = 9.0

    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        url = 'http://127.0.0.1:%d/v3' % self.server.server_port
        self.answer({'token': {
            'methods': ['password'], 'issued_at': '2026-01-01T00:00:00Z',
            'expires_at': '2099-01-01T00:00:00Z',
            'project': {'id': 'p', 'name': 'service', 'domain': {
                'id': 'default', 'name': 'Default'}},
            'user': {'id': 'u', 'name': 'nova', 'domain': {
                'id': 'default', 'name': 'Default'}},
            'catalog': [{'type': 'block-storage', 'id': 'c', 'name': 'cinder',
                         'endpoints': [{
                             'id': 'e', 'interface': 'public', 'url': url,
                             'region': 'r', 'region_id': 'r'}]}]}},
            201, {'X-Subject-Token': 'token'})

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        if parts.path == '/v3':  # which identity API it is
            self.send_error(404)
            return
        self.asked.append((parts.path, parts.query,
                           self.headers['OpenStack-API-Version']))
        name = parts.path.removeprefix('/v3').removeprefix('/p')
        self.answer({
            '/attachments': {'attachments': [
                {'volume_id': VOLUME, 'status': 'reserved'}]},
            '/volumes/' + VOLUME: {'volume': {
                'id': VOLUME, 'size': 4, 'os-vol-host-attr:host':
                    'n1@local#p', 'encrypted': False}},
            '/os-services': {'services': [
                {'host': host + '@local', 'state': 'up'}
                for host in ('n1', 'n2')]},
            '/scheduler-stats/get_pools': {'pools': [
                {'name': host + '@local#p', 'capabilities': {
                    'free_capacity_gb': free, 'localclone_destination': True,
                    'localclone_problems': ''}}
                for host, free in (('n1', 9.0), ('n2', self.free))]},
        }[name])

    def answer(self, body, status=200, headers=()):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, text, *words):
        pass


class NovaConfTest(testtools.TestCase):

    def loaded(self, text):
        """The filters and weighers that a nova.conf names, by Nova."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'nova'
        path.write_text(text)
        conf = cfg.ConfigOpts()
        nova.conf.scheduler.register_opts(conf)
        conf([], default_config_files=[str(path)])
        filter_classes = filters.HostFilterHandler().get_matching_classes(
            conf.filter_scheduler.available_filters)
        weigher_classes = weights.HostWeightHandler().get_matching_classes(
            conf.filter_scheduler.weight_classes)
        self.assertLessEqual(
            set(conf.filter_scheduler.enabled_filters),
            {each.__name__ for each in filter_classes})
        self.assertIn(scheduler.LocalCloneFilter, filter_classes)
        self.assertIn(scheduler.LocalCloneWeigher, weigher_classes)
        return set(conf.filter_scheduler.enabled_filters)

    def test_the_page_s_nova_conf_is_right(self):
        blocks = re.findall(
            r'code-block:: ini\n\n((?: {6}.*\n|\n)+)',
            (ROOT / 'doc/source/operate/placement.rst').read_text())
        text = next(textwrap.dedent(block) for block in blocks
                    if 'available_filters' in block)
        default = CONF.filter_scheduler.enabled_filters
        self.assertEqual({*default, 'LocalCloneFilter'}, self.loaded(text))

    def test_the_lab_s_nova_conf_is_right(self):
        self.loaded(lab_config.control('/nowhere'))


class SchedulerTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.addCleanup(scheduler._knowledge.cache_clear)
        self.api = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), Cinder)
        threading.Thread(target=self.api.serve_forever, daemon=True).start()
        self.addCleanup(self.stop)
        Cinder.asked = []
        Cinder.free = 9.0
        CONF.clear()
        url = 'http://127.0.0.1:%d/v3' % self.api.server_port
        self.configure('filter_scheduler', available_filters=[
            'nova.scheduler.filters.all_filters',
            PACKAGE + 'LocalCloneFilter'], enabled_filters=[
                'ComputeFilter', 'LocalCloneFilter'], weight_classes=[
                    PACKAGE + 'LocalCloneWeigher'])
        CONF.register_opts(
            loading.get_auth_plugin_conf_options('password'), 'cinder')
        self.configure('cinder', catalog_info='block-storage::publicURL',
                       auth_type='password')
        self.configure('cinder', auth_url=url, username='nova',
                       password='p', project_name='service',
                       user_domain_id='default', project_domain_id='default')
        # This machine may be slow; the time limit has tests of its own.
        self.configure('localclone_placement', timeout=60.0)
        self.spec = objects.RequestSpec(
            None, instance_uuid=SERVER, project_id='p', scheduler_hints={})
        self.hosts = [self.host(name) for name in ('n2', 'n1', 'other')]

    def configure(self, group, **values):
        for name, value in values.items():
            CONF.set_override(name, value, group)
            self.addCleanup(CONF.clear_override, name, group)

    def stop(self):
        self.api.shutdown()
        self.api.server_close()

    @staticmethod
    def host(name):
        state = host_manager.HostState(name, name, SERVER)
        state.aggregates = []
        return state

    def filtered(self):
        """By the filter alone, loaded as Nova's HostManager does."""
        handler = filters.HostFilterHandler()
        classes = handler.get_matching_classes(
            CONF.filter_scheduler.available_filters)
        found = {each.__name__: each for each in classes}
        return [each.host for each in handler.get_filtered_objects(
            [found['LocalCloneFilter']()], self.hosts, self.spec)]

    def weighed(self):
        handler = weights.HostWeightHandler()
        classes = handler.get_matching_classes(
            CONF.filter_scheduler.weight_classes)
        return [(each.obj.host, round(each.weight, 3))
                for each in handler.get_weighed_objects(
                    [each() for each in classes], self.hosts, self.spec)]

    def test_no_cinder(self):
        self.assertNotIn('cinder', sys.modules)

    def test_home_first(self):
        self.assertEqual(['n2', 'n1', 'other'], self.filtered())
        self.assertEqual([('n1', 10.0), ('n2', 1.0), ('other', 0.0)],
                         self.weighed())
        # All of it for both, at a version that has attachments.
        self.assertEqual(4, len(Cinder.asked), Cinder.asked)
        self.assertEqual({'volume 3.27'}, {each[2] for each in Cinder.asked})
        self.assertIn(
            ('/v3/attachments', 'all_tenants=1&instance_id=%s&project_id=p'
             % SERVER, 'volume 3.27'), Cinder.asked)

    def test_no_room(self):
        Cinder.free = 3.5
        self.assertEqual(['n1', 'other'], self.filtered())

    def test_multiplier(self):
        self.configure('localclone_placement', weight_multiplier=2.0)
        self.assertEqual(('n1', 2.0), self.weighed()[0])
        self.hosts[0].aggregates = [objects.Aggregate(
            hosts=['n2'], metadata={'localclone_weight_multiplier': '50'})]
        self.assertEqual(('n2', 5.0), self.weighed()[0])

    def test_cinder_is_away(self):
        self.stop()
        self.assertEqual(['n2', 'n1', 'other'], self.filtered())
        self.assertEqual({0.0}, {weight for _host, weight in self.weighed()})
        self.assertEqual([], Cinder.asked)

    def test_cinder_has_no_number(self):
        Cinder.free = 'unknown'
        self.assertEqual(['n2', 'n1', 'other'], self.filtered())
        self.assertEqual(('n1', 10.0), self.weighed()[0])

    def test_whatever_fails(self):
        self.useFixture(fixtures.MockPatchObject(
            scheduler.placement.Outlook, 'refusal', side_effect=ValueError))
        self.assertEqual(['n2', 'n1', 'other'], self.filtered())

    def test_an_endpoint_by_template(self):
        self.configure(
            'cinder', endpoint_template='http://127.0.0.1:%d/v3/%%('
            'project_id)s' % self.api.server_port)
        self.assertEqual(('n1', 10.0), self.weighed()[0])
        self.assertEqual({True}, {path.startswith('/v3/p/')
                                  for path, *_more in Cinder.asked})

    def test_a_request_without_a_server_or_a_project(self):
        for known in ({'project_id': 'p'}, {'instance_uuid': SERVER}):
            self.spec = objects.RequestSpec(
                None, scheduler_hints={}, **known)
            self.assertEqual(['n2', 'n1', 'other'], self.filtered())
        self.assertEqual([], Cinder.asked)

    def test_a_rebuild_is_not_filtered(self):
        Cinder.free = 3.5
        self.spec.scheduler_hints = {'_nova_check_type': ['rebuild']}
        self.assertEqual(['n2', 'n1', 'other'], self.filtered())
