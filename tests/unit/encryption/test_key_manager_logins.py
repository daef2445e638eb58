# SPDX-License-Identifier: Apache-2.0
"""How often the key manager is logged in to: castellan's own code runs."""

import datetime
import json
import threading
from unittest import mock

from castellan.common.credentials import keystone_password
from castellan.common.credentials import keystone_token
from castellan.key_manager import barbican_key_manager
import fixtures
from oslo_config import cfg
import requests
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core.volume_types import KeyFormat
from cinder_localclone.encryption import key_manager

KEYSTONE, BARBICAN = 'http://k/v3', 'http://b'
SECRET = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
PAYLOAD = b'\x01' * 32


def response(status, body, **headers):
    found = requests.Response()
    found.status_code = status
    found._content = body if isinstance(body, bytes) else json.dumps(
        body).encode()
    found.headers.update(headers)
    return found


class Server:
    """Keystone and Barbican, as far as one secret needs them."""

    def __init__(self):
        self.logins, self.reads, self.discoveries = [], [], 0
        #: Tokens that Barbican takes; a login makes one more.
        self.good = set()
        #: How long a token lasts, seconds.
        self.lasts = 3600
        self.down = False
        self._lock = threading.Lock()

    def request(self, url, method, headers=None, **more):
        if self.down:
            raise requests.exceptions.ConnectionError('no route')
        if url.startswith(KEYSTONE):
            return self._keystone(url, method, more.get('data'))
        if url.rstrip('/').endswith(BARBICAN):
            self.discoveries += 1
            return response(200, {'versions': [{
                'id': 'v1', 'status': 'CURRENT', 'min_version': '1.0',
                'max_version': '1.1', 'links': [
                    {'rel': 'self', 'href': BARBICAN + '/v1/'}]}]})
        token = headers.get('X-Auth-Token')
        if token not in self.good:
            return response(401, {})
        self.reads.append(token)
        if url.endswith('/payload'):
            return response(200, PAYLOAD)
        return response(200, {
            'name': 'localclone volume x', 'algorithm': 'AES',
            'bit_length': 256, 'mode': None, 'secret_type': 'symmetric',
            'status': 'ACTIVE', 'content_types': {
                'default': 'application/octet-stream'},
            'created': '2026-11-01T00:00:00', 'secret_ref': url})

    def _keystone(self, url, method, data):
        if not url.endswith('/auth/tokens'):
            return response(200, {'version': {
                'id': 'v3.14', 'status': 'stable', 'links': [
                    {'rel': 'self', 'href': KEYSTONE}]}})
        with self._lock:
            self.logins.append(json.loads(data)['auth']['identity'])
            token = 'token-%d' % len(self.logins)
            self.good.add(token)
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(
            seconds=self.lasts)
        return response(201, {'token': {
            'expires_at': end.strftime('%Y-%m-%dT%H:%M:%S.000000Z'),
            'issued_at': '2026-11-01T00:00:00.000000Z', 'methods': [],
            'user': {'id': 'u', 'name': 'u', 'domain': {
                'id': 'd', 'name': 'D'}}, 'catalog': []}},
            **{'X-Subject-Token': token})


class LoginTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.server = Server()
        session = mock.Mock()
        session.request.side_effect = (
            lambda method, url, **more: self.server.request(
                url, method, **more))
        self.useFixture(fixtures.MockPatch(
            'keystoneauth1.session._construct_session',
            lambda *_all, **_more: session))
        conf = cfg.ConfigOpts()
        conf([])
        self.useFixture(fixtures.MockPatchObject(
            key_manager.key_manager, 'API',
            side_effect=lambda _conf: self._manager(conf)))
        self.useFixture(fixtures.MockPatchObject(
            key_manager.castellan_utils, 'credential_factory',
            side_effect=lambda _conf: keystone_password.KeystonePassword(
                'pw', auth_url=KEYSTONE, username='cinder',
                user_domain_name='D', project_name='service',
                project_domain_name='D')))
        self.keys = key_manager.Keys(key_manager.KEY_MANAGER)

    @staticmethod
    def _manager(conf):
        manager = barbican_key_manager.BarbicanKeyManager(conf)
        conf.set_override('barbican_endpoint', BARBICAN, 'barbican')
        return manager

    def get(self):
        self.assertEqual(PAYLOAD, self.keys.get(SECRET, KeyFormat.RAW))

    def test_one_login_for_all_calls(self):
        """Without what is kept, there are five of each."""
        self.get()
        once = self.server.discoveries  # Cinder 27's Barbican client: two
        for _repeated in range(4):
            self.get()
        self.assertEqual((1, once), (len(self.server.logins),
                                     self.server.discoveries))

    def test_what_castellan_does_by_itself(self):
        """Once that keeps a client by itself, nobody else has to."""
        manager = key_manager.key_manager.API(None)
        whose = key_manager.castellan_utils.credential_factory(None)
        manager.get(whose, SECRET)
        once = self.server.discoveries
        for _repeated in range(4):
            manager.get(whose, SECRET)
        self.assertEqual((5, 5 * once), (len(self.server.logins),
                                         self.server.discoveries))

    def test_token_that_is_refused(self):
        self.get()
        self.server.good.clear()  # it was revoked
        self.get()
        self.get()
        self.assertEqual(2, len(self.server.logins))

    def test_token_that_ends(self):
        self.server.lasts = 10  # less than what keystoneauth calls "soon"
        self.get()
        self.server.lasts, before = 3600, len(self.server.logins)
        self.get()
        self.get()
        self.assertEqual(before + 1, len(self.server.logins))

    def test_after_an_error_all_is_made_anew(self):
        self.get()
        self.server.down = True
        self.assertRaises(encryption_exceptions.KeyUnavailable, self.get)
        self.server.down = False
        self.get()
        self.assertEqual(2, len(self.server.logins))

    def test_password_that_is_refused(self):
        """The next call reads it anew from the configuration."""
        self.get()
        with mock.patch.object(Server, 'request',
                               return_value=response(401, {})):
            self.assertRaises(encryption_exceptions.KeyRefused, self.get)
        self.get()
        self.assertEqual(
            2, key_manager.castellan_utils.credential_factory.call_count)

    def test_secret_that_is_gone_costs_no_login(self):
        self.get()
        with mock.patch.object(Server, 'request',
                               return_value=response(404, {})):
            self.assertRaises(encryption_exceptions.KeyRefused, self.get)
        self.get()
        self.assertEqual(1, len(self.server.logins))

    def test_threads(self):
        failed = []

        def act():
            try:
                self.get()
            except Exception as exc:
                failed.append(exc)
        self.get()
        threads = [threading.Thread(target=act) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual([], failed)
        self.assertEqual(1, len(self.server.logins))

    def test_owners_have_logins_of_their_own(self):
        """Nobody gets what another's token reads, nor what the service's."""
        self.get()
        for name in ('one', 'two'):
            self.keys.owners_key(keystone_token.KeystoneToken(
                name, auth_url=KEYSTONE, project_name='p',
                project_domain_name='D'), SECRET)
        self.get()
        self.assertEqual(
            ['password', 'token', 'token'],
            [each['methods'][0] for each in self.server.logins])
        self.assertEqual(['one', 'two'], [
            each['token']['id'] for each in self.server.logins[1:]])
        # Each has read by its own token, and the service by its first.
        self.assertEqual(['token-1', 'token-2', 'token-3', 'token-1'],
                         list(dict.fromkeys(self.server.reads)) + [
                             self.server.reads[-1]])
