# SPDX-License-Identifier: Apache-2.0
"""Secrets in a key manager that answers, refuses, or does neither."""

import datetime
import io
import json
import logging
import threading
import time
import traceback
import types
from unittest import mock

from barbicanclient import exceptions as barbican_exceptions
from castellan.common.credentials import keystone_password
from castellan.common.credentials import keystone_token
from castellan.common import exception as castellan_exception
from castellan.common.objects import opaque_data
from castellan.common.objects import passphrase
from castellan.common.objects import symmetric_key
from castellan.key_manager import barbican_key_manager
import ddt
import fixtures
from oslo_config import cfg
import requests
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import names
from cinder_localclone.core.volume_types import KeyFormat
from cinder_localclone.service import key_manager
from tests.world.fake_key_manager import Answer
from tests.world.fake_key_manager import Manager

VOLUME = 'bc5cfce0-cd3d-4029-88f4-3c64da986803'
OTHER = VOLUME.replace('b', 'a')


@ddt.ddt
class KeysTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.manager = Manager()
        self.opened = self.useFixture(fixtures.MockPatchObject(
            key_manager.key_manager, 'API', return_value=self.manager)).mock
        self.credentials = self.useFixture(fixtures.MockPatchObject(
            key_manager.castellan_utils, 'credential_factory')).mock
        self.keys = key_manager.Keys(key_manager.KEY_MANAGER)

    def test_nothing_that_castellan_quotes_is_in_a_traceback(self):
        for error in (NotImplementedError('no'),
                      encryption_exceptions.KeyRefused(key='k', reason='no')):
            error.__context__ = castellan_exception.KeyManagerError(
                reason='it has SECRET')
            self.manager.error = error
            found = self.assertRaises(type(error), self.keys.check)
            self.assertNotIn('SECRET', ''.join(
                traceback.format_exception(found)))

    def test_name_that_is_another_volumes(self):
        """A header has named it: that is no reason to use it, or drop it."""
        key = self.keys.create(VOLUME)
        for act in (lambda volume_id: self.keys.get(
                key, KeyFormat.HEX, volume_id), lambda volume_id:
                self.keys.remove(key, volume_id)):
            error = self.assertRaises(encryption_exceptions.KeyRefused, act,
                                      OTHER)
            self.assertIn('not named after volume ' + OTHER, str(error))
            self.assertIn(key, self.manager.kept)
            act(VOLUME)
        self.assertEqual({}, self.manager.kept)

    def test_own_secret_of_another_length(self):
        """A part of one opens nothing, and must make no key slot."""
        for key_format in (KeyFormat.HEX, KeyFormat.RAW,
                           KeyFormat.PASSPHRASE):
            key = self.keys.create(VOLUME, key_format)
            self.keys.get(key, key_format, VOLUME)
            whole = self.manager.kept[key].get_encoded()
            for wrong in (whole[:-1], whole + whole[:1]):
                self.manager.kept[key] = opaque_data.OpaqueData(
                    wrong, name=names.secret(VOLUME))
                error = self.assertRaises(
                    encryption_exceptions.KeyRefused, self.keys.get, key,
                    key_format)
                self.assertIn('bytes', str(error))

    def test_again_is_over_a_new_login(self):
        key = self.keys.create(VOLUME)
        first = self.keys.get(key, KeyFormat.HEX, VOLUME)
        self.assertEqual(1, self.opened.call_count)
        self.assertEqual(first, self.keys.get_again(
            key, KeyFormat.HEX, VOLUME))
        self.assertEqual(2, self.opened.call_count)
        self.assertRaises(encryption_exceptions.KeyRefused,
                          self.keys.get_again, key, KeyFormat.HEX, OTHER)

    def test_secret_without_a_name(self):
        key = self.manager.store(mock.sentinel.us, symmetric_key.SymmetricKey(
            'AES', 256, bytes(32)))
        self.keys.get(key, KeyFormat.HEX)
        self.assertRaises(encryption_exceptions.KeyRefused, self.keys.get, key,
                          KeyFormat.HEX, VOLUME)
        self.keys.get(key, KeyFormat.HEX, VOLUME, or_shared=True)
        theirs = self.keys.create(OTHER)
        self.assertRaises(encryption_exceptions.KeyRefused, self.keys.get,
                          theirs, KeyFormat.HEX, VOLUME, or_shared=True)

    def test_secret_that_a_volume_shares_with_what_it_was_made_of(self):
        """The key manager itself says so; a disk's word is not enough."""
        key = self.keys.create(OTHER)
        secret = self.manager.kept[key]

        def get(**how):
            return self.keys.get(key, KeyFormat.HEX, VOLUME, **how)
        for used_by in ({'resource_type': 'snapshots',
                         'resource_id': VOLUME},
                        {'resource_type': 'volumes', 'resource_id': OTHER}):
            secret._consumers = [dict(used_by, service='volume')]
            self.assertRaises(encryption_exceptions.KeyRefused, get,
                              or_shared=True)
        secret._consumers.append({
            'service': 'volume', 'resource_type': 'volumes',
            'resource_id': VOLUME})
        self.assertEqual(self.keys.get(key, KeyFormat.HEX),
                         get(or_shared=True))
        # Of what only a header names nothing but the name counts.
        self.assertRaises(encryption_exceptions.KeyRefused, get)

    def test_secret_of_a_type_is_no_volumes(self):
        """It would go with that volume."""
        key = self.keys.create(VOLUME)
        error = self.assertRaises(encryption_exceptions.KeyRefused,
                                  self.keys.check_shared, key)
        self.assertIn(VOLUME, str(error))
        for name in (None, 'for all'):
            key = self.manager.store(
                mock.sentinel.us, symmetric_key.SymmetricKey(
                    'AES', 256, bytes(32), name=name))
            self.keys.check_shared(key)

    def test_a_secret_from_its_beginning_to_its_end(self):
        key = self.keys.create(VOLUME)
        secret = self.manager.kept[key]
        self.assertEqual((names.secret(VOLUME), 64, 512), (
            secret.name, len(secret.get_encoded()), secret.bit_length))
        self.assertEqual(secret.get_encoded().hex().encode(),
                         self.keys.get(key, KeyFormat.HEX))
        self.assertEqual(secret.get_encoded(),
                         self.keys.get(key, KeyFormat.RAW))
        for _repeated in range(2):
            self.keys.remove(key)
            self.assertEqual({}, self.manager.kept)
        self.assertRaises(encryption_exceptions.KeyRefused, self.keys.get, key,
                          KeyFormat.HEX)
        self.opened.assert_called_once_with(key_manager.CONF)

    def test_what_others_have_stored_stays(self):
        for number, name in enumerate((None, '', 'for all', 'localclone')):
            self.manager.kept[number] = passphrase.Passphrase(
                b'p', name=name)
            self.keys.remove(number)
        self.assertEqual(4, len(self.manager.kept))

    def test_owner_of(self):
        key = self.keys.create(VOLUME)
        self.assertEqual(VOLUME, self.keys.owner_of(key))
        for number, name in enumerate((None, '', 'for all', 'localclone')):
            self.manager.kept[number] = passphrase.Passphrase(
                b'p', name=name)
            self.assertEqual('', self.keys.owner_of(number))
        self.keys.remove(key)
        self.assertEqual('', self.keys.owner_of(key))

    def test_owner_of_a_secret_is_asked_without_its_key(self):
        """It may be another volume's, or not readable."""
        key = self.keys.create(OTHER)
        with mock.patch.object(self.manager, 'get',
                               wraps=self.manager.get) as get:
            self.keys.owner_of(key)
        self.assertTrue(all(
            call.kwargs.get('metadata_only') or call.args[2:] == (True,)
            for call in get.call_args_list), get.call_args_list)

    def test_each_is_another_one(self):
        self.assertEqual(9, len({self.keys.get(
            self.keys.create(VOLUME), KeyFormat.RAW) for _ in range(9)}))

    def test_passphrase(self):
        key = self.keys.create(VOLUME, KeyFormat.PASSPHRASE)
        self.assertIsInstance(self.manager.kept[key], passphrase.Passphrase)
        self.assertRegex(self.keys.get(key, KeyFormat.PASSPHRASE).decode(),
                         '^[0-9a-f]{128}$')

    @ddt.data('text', b'text')
    def test_what_somebody_else_has_stored(self, secret):
        self.manager.kept['k'] = types.SimpleNamespace(
            get_encoded=lambda: secret, name=None)
        self.assertEqual(b'text', self.keys.get('k', KeyFormat.PASSPHRASE))
        self.assertEqual(b'74657874', self.keys.get('k', KeyFormat.HEX))

    @ddt.data('', b'', None)
    def test_secret_that_is_empty(self, secret):
        self.manager.kept['k'] = types.SimpleNamespace(
            get_encoded=lambda: secret, name=None)
        self.assertRaises(encryption_exceptions.KeyRefused, self.keys.get, 'k',
                          KeyFormat.RAW)
        self.assertRaises(encryption_exceptions.KeyUnreadable,
                          self.keys.owners_key, object(), 'k')

    def test_reference_that_no_tag_can_have(self):
        with mock.patch.object(self.manager, 'store', return_value='a b'):
            self.assertRaises(encryption_exceptions.KeyRefused,
                              self.keys.create, VOLUME)

    def test_found_by_the_name_of_its_volume(self):
        mine = sorted(self.keys.create(VOLUME) for _ in range(2))
        self.keys.create(OTHER)
        self.manager.kept['nameless'] = None
        self.assertEqual(mine, self.keys.find(VOLUME))

    def test_barbican_is_asked_by_name(self):
        """Without one it lists ten."""
        client = mock.Mock()
        client.secrets.list.return_value = [types.SimpleNamespace(
            name=names.secret(VOLUME), secret_ref='http://b/v1/secrets/k1')]
        self.manager._get_barbican_client = lambda whose: client
        self.assertEqual(['k1'], self.keys.find(VOLUME))
        self.assertEqual(names.secret(VOLUME),
                         client.secrets.list.call_args.kwargs['name'])

    # -- consumers

    def test_consumers(self):
        key = self.keys.create(VOLUME)
        self.keys.consume(key, 'volumes', VOLUME)
        self.assertEqual([(key, {'service': 'volume', 'resource_type':
                                 'volumes', 'resource_id': VOLUME})],
                         self.manager.used)
        self.keys.release(key, 'volumes', VOLUME)
        self.assertEqual([], self.manager.used)
        self.keys.remove(key)
        self.keys.release(key, 'volumes', VOLUME)

    def test_registered_consumers(self):
        key = self.keys.create(VOLUME)
        self.assertEqual([], self.keys.consumers(key))
        self.manager.kept[key]._consumers = [
            {'service': 'volume', 'resource_type': 'volumes',
             'resource_id': VOLUME},
            {'service': 'image', 'resource_type': 'images',
             'resource_id': 'i'}]
        self.assertEqual([('volumes', VOLUME)], self.keys.consumers(key))
        self.assertEqual([], self.keys.consumers('missing'))

    def test_secret_with_consumers_before_barbican_1_2(self):
        """barbicanclient refuses by itself; its error has no HTTP status."""
        manager = barbican_key_manager.BarbicanKeyManager.__new__(
            barbican_key_manager.BarbicanKeyManager)
        client = mock.Mock()
        client.secrets.delete.side_effect = (
            barbican_exceptions.SecretHasConsumers())
        manager._get_barbican_client = lambda _whose: client
        manager.get = lambda *_args: passphrase.Passphrase(
            b'p', name=names.secret(VOLUME))
        self.opened.return_value = manager
        self.assertRaises(encryption_exceptions.KeyRefused, self.keys.remove,
                          'k', VOLUME)

    def test_key_manager_that_knows_no_consumers(self):
        for method in ('add_consumer', 'remove_consumer'):
            setattr(self.manager, method, mock.Mock(
                side_effect=NotImplementedError))
        with mock.patch.object(key_manager.LOG, 'info') as said:
            for _repeated in range(2):
                self.keys.consume('k', 'volumes', VOLUME)
                self.keys.release('k', 'volumes', VOLUME)
        said.assert_called_once()

    def test_who_uses_what_is_gone(self):
        self.assertRaises(encryption_exceptions.KeyRefused, self.keys.consume,
                          'k', 'volumes', VOLUME)

    # -- an owner's

    def test_owners_key_is_read_by_the_owner(self):
        self.manager.kept['k'] = symmetric_key.SymmetricKey(
            'AES', 16, b'\xff\x00')
        context, asked = object(), []
        with mock.patch.object(self.manager, '_answer', asked.append):
            self.assertEqual(b'ff00', self.keys.owners_key(context, 'k'))
        self.assertEqual([context], asked)
        self.credentials.assert_not_called()

    def test_owners_key_that_is_refused(self):
        self.assertRaises(encryption_exceptions.KeyUnreadable,
                          self.keys.owners_key, object(), 'k')
        self.manager.error = Answer(403)
        error = self.assertRaises(encryption_exceptions.KeyUnreadable,
                                  self.keys.owners_key, object(), 'k')
        self.assertIn('403', str(error))
        self.manager.error = Answer(503)
        self.assertRaises(encryption_exceptions.KeyUnavailable,
                          self.keys.owners_key, object(), 'k')

    # -- no answer, and no

    @ddt.data(Answer(403), Answer(401, 'http_status'), Answer(409),
              KeyError('k'), castellan_exception.Forbidden(),
              castellan_exception.InsufficientCredentialDataError())
    def test_refused(self, error):
        self._fails(error, encryption_exceptions.KeyRefused)

    def test_credentials_that_are_missing(self):
        """No secret was asked for, so the error names none."""
        for error, act, args in (
                (Answer(403), self.keys.check, ()),
                (castellan_exception.AuthTypeInvalidError(type='x'),
                 self.keys.check, ()),
                (castellan_exception.InsufficientCredentialDataError(),
                 self.keys.get, ('k-1', VOLUME))):
            self.manager.error = error
            found = self.assertRaises(
                encryption_exceptions.LoginRefused, act, *args)
            self.assertIn('does not accept this service', str(found))
            self.assertIn('Correct [key_manager]', str(found))
            self.assertNotIn('ecret', str(found))

    @ddt.data(Answer(500), Answer(503), Answer(429), Answer(408),
              Answer(404), Answer(401), Answer(404, 'http_status'),
              OSError('no route to host'),
              castellan_exception.KeyManagerError(reason='down'),
              ValueError('this is no JSON'))
    def test_unavailable(self, error):
        self._fails(error, encryption_exceptions.KeyUnavailable)

    def _fails(self, error, kind):
        self.manager.error = error
        for act, *arguments in (
                (self.keys.create, VOLUME),
                (self.keys.get, 'k', KeyFormat.HEX), (self.keys.remove, 'k'),
                (self.keys.find, VOLUME), (self.keys.check,),
                (self.keys.owner_of, 'k'),
                (self.keys.consume, 'k', 'volumes', VOLUME),
                (self.keys.release, 'k', 'volumes', VOLUME)):
            found = self.assertRaises(kind, act, *arguments)
            self.assertIsNone(found.__cause__)

    def test_nothing_is_found_where_nothing_answers(self):
        """A proxy says 404, too, while the key manager is away: that is no
        reason to take a secret for gone.
        """
        gone = castellan_exception.ManagedObjectNotFoundError(uuid='k')
        acts = ((self.keys.get, 'k', KeyFormat.HEX), (self.keys.remove, 'k'),
                (self.keys.release, 'k', 'volumes', VOLUME),
                (self.keys.owner_of, 'k'))
        with mock.patch.object(self.manager, 'get', autospec=True,
                               side_effect=gone):
            for error in Answer(404), OSError('no route to host'):
                with mock.patch.object(self.manager, 'list', autospec=True,
                                       side_effect=error):
                    for act, *arguments in acts:
                        self.assertRaises(encryption_exceptions.KeyUnavailable,
                                          act, *arguments)
            # It answers, or says at least that it is there.
            for error in None, Answer(403):
                with mock.patch.object(self.manager, 'list', autospec=True,
                                       side_effect=error, return_value=[]):
                    self.assertRaises(encryption_exceptions.KeyRefused,
                                      *acts[0])
                    for act, *arguments in acts[1:]:
                        act(*arguments)

    def limit(self, seconds):
        self.useFixture(fixtures.MockPatchObject(
            key_manager, 'TIMEOUT', seconds))

    def test_time_limit(self):
        self.limit(0.2)
        self.manager.wait.clear()
        self.addCleanup(self.manager.wait.set)
        error = self.assertRaises(encryption_exceptions.KeyUnavailable,
                                  self.keys.get, 'k', KeyFormat.HEX)
        self.assertIn('0.2 s', str(error))
        self.assertEqual(0, self.manager.answers)
        # Nobody else waits; after a while it is asked again.
        self.limit(20)
        error = self.assertRaises(encryption_exceptions.KeyUnavailable,
                                  self.keys.check)
        self.assertIn('a moment ago', str(error))
        self.manager.wait.set()
        time.sleep(0.3)
        self.keys.check()

    @ddt.data((Answer(503), 2), (Answer(401), 2),
              (Answer(401, 'http_status'), 2), (Answer(403), 1))
    @ddt.unpack
    def test_login_after(self, error, logins):
        """The key manager may be elsewhere by now, or know this service by
        another password.
        """
        self.keys.check()
        self.manager.error = error
        self.assertRaises((encryption_exceptions.KeyUnavailable,
                           encryption_exceptions.KeyRefused), self.keys.check)
        self.manager.error = None
        self.keys.check()
        self.assertEqual(logins, self.opened.call_count)

    def test_login_after_a_time_limit(self):
        self.keys.check()
        self.limit(0.1)
        self.manager.wait.clear()
        self.addCleanup(self.manager.wait.set)
        self.assertRaises(encryption_exceptions.KeyUnavailable,
                          self.keys.check)
        self.assertEqual(1, self.opened.call_count)
        self.manager.wait.set()
        self.limit(20)
        self.keys._silent = 0.0
        self.keys.check()
        self.assertEqual(2, self.opened.call_count)

    def test_key_manager_that_cannot_be_loaded(self):
        self.opened.side_effect = RuntimeError('no such backend')
        self.assertRaises(encryption_exceptions.KeyUnavailable,
                          self.keys.check)
        self.opened.side_effect = None
        self.keys.check()

    # -- what is logged, and who asks

    def test_nothing_is_logged_that_has_a_secret(self):
        text = io.StringIO()
        handler = logging.StreamHandler(text)
        logger = logging.getLogger('keystoneauth.session')
        level = logger.level
        self.addCleanup(logger.setLevel, level)
        self.addCleanup(logger.removeHandler, handler)
        logger.setLevel(logging.DEBUG)
        logger.addHandler(handler)
        self.keys.create(VOLUME)
        self.assertEqual('is slow\n', text.getvalue())
        logger.debug('of somebody else')
        self.assertIn('somebody else', text.getvalue())

    def test_credentials(self):
        with mock.patch.object(key_manager, '_of_authtoken') as of_authtoken:
            self.keys.check()
            self.credentials.assert_called_once_with(key_manager.CONF)
            of_authtoken.assert_not_called()
            key_manager.Keys(key_manager.AUTHTOKEN).check()
            of_authtoken.assert_called_once_with()
        self.credentials.assert_called_once_with(key_manager.CONF)

    def test_project(self):
        self.credentials.return_value.project_name = 'volume-keys'
        self.assertEqual('volume-keys', self.keys.project())
        self.credentials.return_value = object()  # of another auth_type
        self.assertEqual('', key_manager.Keys('key_manager').project())

    def test_of_cinders_own_user(self):
        section = types.SimpleNamespace(
            password='p', auth_url='http://k', username='cinder',
            user_domain_name='D', project_name='service',
            project_domain_name='D')
        with mock.patch.object(key_manager, 'CONF', {
                'keystone_authtoken': section}), \
                mock.patch('keystoneauth1.loading.register_auth_conf_options'
                           ), mock.patch('keystoneauth1.loading.'
                                         'load_auth_from_conf_options'):
            found = key_manager._of_authtoken()
        self.assertEqual(('cinder', 'service', 'http://k'), (
            found.username, found.project_name, found.auth_url))


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
