# SPDX-License-Identifier: Apache-2.0
"""Secrets in a key manager that answers, refuses, or does neither."""

import io
import logging
import time
import traceback
import types
from unittest import mock

from castellan.common import exception as castellan_exception
from castellan.common.objects import opaque_data
from castellan.common.objects import passphrase
from castellan.common.objects import symmetric_key
import ddt
import fixtures
import testtools

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import names
from cinder_localclone.core.volume_types import KeyFormat
from cinder_localclone.encryption import key_manager
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
                (self.keys.release, 'k', 'volumes', VOLUME))
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
