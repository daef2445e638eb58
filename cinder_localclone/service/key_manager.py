# SPDX-License-Identifier: Apache-2.0
"""Secrets of encrypted volumes, in Cinder's key manager.

Secrets of volumes that the driver encrypts belong to the service's project, so
a node can read them when it starts. Secrets of volumes that Nova encrypts
belong to the volume's owner, and only the owner's token reads them.

A key stays in the memory of its user, for a short time. No message, record or
log contains a key.

castellan logs in to Keystone for each call. A login takes about a second, a
call a tenth of a second. Therefore the client with the service's own
credentials is kept. keystoneauth gets a new token before the old token ends,
or when a token is refused. A request of an owner has its own credentials and
its own client, because an owner must not read the secrets of another owner.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import logging as python_logging
import os
import threading
import time
import typing

from castellan.common import exception as castellan_exception
from castellan.common.objects import opaque_data
from castellan.common.objects import passphrase
from castellan.common.objects import symmetric_key
from castellan.common import utils as castellan_utils
from castellan import key_manager
from oslo_config import cfg
from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.interfaces import crypt
from cinder_localclone.core import names
from cinder_localclone.core import objects
from cinder_localclone.core import volume_types

CONF = cfg.CONF
LOG = logging.getLogger(__name__)

#: Seconds to wait for the key manager. This must be well below
#: localclone_peer_timeout: the destination of a move requests the key while
#: its peer waits.
TIMEOUT = 15
#: The values of localclone_key_auth: sections with credentials.
KEY_MANAGER, AUTHTOKEN = 'key_manager', 'keystone_authtoken'
#: HTTP statuses of a permanent refusal.
_NO = range(400, 500)
#: HTTP statuses after which a retry may succeed.
_LATER = (408, 425, 429)
#: The service of a consumer, see :meth:`Keys.consume`.
_SERVICE = 'volume'
#: Attributes with the HTTP status: barbicanclient's, and keystoneauth's.
_NUMBERS = ('status_code', 'http_status')
#: barbicanclient's error for a secret with consumers; it has no HTTP status.
_CONSUMED = 'SecretHasConsumers'
#: The maximum number of secrets listed for a name.
_MOST = 100
#: The maximum number of secrets searched for secrets of deleted volumes.
_MOST_OF_ALL = 20 * _MOST
#: At level debug these loggers log requests and responses, with secrets.
_TALKATIVE = ('keystoneauth.session', 'barbicanclient.client',
              'barbicanclient.v1.client', 'barbicanclient.v1.secrets')

#: castellan's Barbican method that makes a client. Other key managers keep
#: their clients themselves.
_MAKES = '_get_barbican_client'


class _Silence(python_logging.Filter):
    """Filters debug messages while this thread handles a secret."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted = threading.local()

    @contextlib.contextmanager
    def __call__(self) -> typing.Iterator[None]:
        self._wanted.silent = True
        try:
            yield
        finally:
            self._wanted.silent = False

    def filter(self, record: python_logging.LogRecord) -> bool:
        return (record.levelno > python_logging.DEBUG
                or not getattr(self._wanted, 'silent', False))


_silence = _Silence()
for _name in _TALKATIVE:
    python_logging.getLogger(_name).addFilter(_silence)


class Login:
    """A castellan key manager, with this service's credentials and client.

    Several threads may use it at once: each makes a client if there is none,
    and the last client is kept.

    :param manager: a new castellan key manager, for this object alone
    :param credentials: makes the service's credentials when they are needed;
        an owner's secret is read without them
    """

    def __init__(self, manager: typing.Any,
                 credentials: Callable[[], typing.Any]):
        self.manager = manager
        self._make_credentials = credentials
        self._credentials: typing.Any = None
        self._client: typing.Any = None
        self._make: Callable[[typing.Any], typing.Any] | None = getattr(
            manager, _MAKES, None)
        if self._make is not None:
            setattr(manager, _MAKES, self.client)

    @property
    def credentials(self) -> typing.Any:
        """The service's credentials, always the same object."""
        if self._credentials is None:
            self._credentials = self._make_credentials()
        return self._credentials

    def client(self, whose: typing.Any) -> typing.Any:
        """Return Barbican's client for some credentials."""
        make = typing.cast(Callable[[typing.Any], typing.Any], self._make)
        if whose is not self._credentials:
            return make(whose)
        client = self._client
        if client is None:
            client = self._client = make(whose)
        return client


class Keys(crypt.Keys):
    """The secrets of this service in the key manager.

    :param auth: the section of the credentials: :data:`KEY_MANAGER` or
        :data:`AUTHTOKEN`
    """

    def __init__(self, auth: str):
        self._auth = auth
        #: None: the next call logs in.
        self._login: Login | None = None
        self._consumers = True
        #: Until then the key manager is not asked, because it did not answer.
        self._silent = 0.0

    # -- the driver's own secrets

    def create(self, volume_id: str, key_format: volume_types.KeyFormat =
               volume_types.KeyFormat.HEX) -> str:
        """Store a new secret with the name of a volume.

        :returns: its reference
        :raises KeyUnavailable: if the key manager does not answer. The secret
            may be stored, or may be stored later: :meth:`find` returns it then
        :raises KeyRefused: if the key manager refuses the secret
        """
        secret, name = os.urandom(luks_header.NEW_KEY_BYTES), names.secret(
            volume_id)
        kept: typing.Any = symmetric_key.SymmetricKey(
            'AES', 8 * len(secret), secret, name=name)
        if key_format is volume_types.KeyFormat.PASSPHRASE:
            kept = passphrase.Passphrase(secret.hex().encode(), name=name)
        key = str(self._ask('', 'store', kept))
        if not volume_types.is_reference(key):
            raise encryption_exceptions.KeyRefused(
                key=key, reason='the driver can\'t record its reference')
        return key

    def get(self, key: str, key_format: volume_types.KeyFormat,
            volume_id: str = '', or_shared: bool = False) -> bytes:
        """Return the key of a volume.

        :param key: the reference of its secret
        :param volume_id: the volume in the required name of the secret; '' if
            a row names the secret, because a row may name a type's secret
        :param or_shared: also accept a secret without a volume's name, such as
            a type's secret, and a secret shared with the volume's source. In
            the latter case the key manager must list the volume as a consumer
        :raises KeyUnavailable: if the key manager does not answer
        :raises KeyRefused: if the secret does not exist, is not readable for
            this service, or has another name
        """
        secret = self._ask(key, 'get', key)
        if not (or_shared and _is_shared(secret, volume_id)):
            _check_name(key, secret, volume_id)
        try:
            found = _bytes(secret)
            if names.volume_of_secret(secret.name):
                luks_header.check_own_key(found, key_format)
            return luks_header.opening_key(found, key_format)
        except ValueError as exc:
            raise encryption_exceptions.KeyRefused(key=key, reason=exc)

    def get_again(self, key: str, key_format: volume_types.KeyFormat,
                  volume_id: str = '') -> bytes:
        """Return the key as :meth:`get` does, over a new login.

        This proves a secret before the other secret of a volume is removed. A
        single wrong answer must not prove itself.

        :raises KeyUnavailable: as for :meth:`get`
        :raises KeyRefused: as for :meth:`get`
        """
        self._login = None
        return self.get(key, key_format, volume_id)

    def check_shared(self, key: str) -> None:
        """Check that a secret may belong to all volumes of a type.

        :raises KeyUnavailable: as for :meth:`get`
        :raises KeyRefused: if the secret has the name of a volume, and is
            deleted with this volume
        """
        owner = names.volume_of_secret(self._ask(key, 'get', key, True).name)
        if owner:
            raise encryption_exceptions.KeyRefused(
                key=key, reason='it is the secret of volume %s; store another '
                'secret for the type' % owner)

    def remove(self, key: str, volume_id: str = '') -> None:
        """Delete a secret; do nothing if it does not exist.

        The caller has checked that no row names the secret: see
        :mod:`.secrets`. A secret without the name of a volume is not the
        driver's, and stays.

        :param volume_id: the volume in the required name of the secret; '' if
            a row has named the secret
        :raises KeyUnavailable: if the key manager does not answer
        :raises KeyRefused: if the secret has consumers, or another name
        """
        with contextlib.suppress(_Gone):
            found = self._ask(key, 'get', key, True)
            if names.volume_of_secret(found.name):
                _check_name(key, found, volume_id)
                self._ask(key, 'delete', key)

    def owner_of(self, key: str) -> str:
        """Return the ID of the volume in the name of a secret, or ''.

        :raises KeyUnavailable: if the key manager does not answer
        """
        with contextlib.suppress(_Gone):
            return names.volume_of_secret(
                self._ask(key, 'get', key, True).name)
        return ''

    def consumers(self, key: str) -> list[tuple[str, str]]:
        """Return the registered consumers of a secret.

        :returns: pairs as for :meth:`consume`; none if the key manager does
            not record consumers
        :raises KeyUnavailable: if the key manager does not answer
        """
        with contextlib.suppress(_Gone):
            return [(each.get('resource_type', ''),
                     each.get('resource_id', ''))
                    for each in getattr(self._ask(key, 'get', key, True),
                                        'consumers', None) or ()
                    if each.get('service') == _SERVICE]
        return []

    def find(self, volume_id: str) -> list[str]:
        """Return the secrets with the name of a volume, used or not.

        :raises KeyUnavailable: if the key manager does not answer
        """
        name = names.secret(volume_id)
        return sorted(
            str(each.id) for each in self._call(
                '', lambda login: _named(
                    login.manager, login.credentials, name))
            if each.name == name and each.id)

    def of_volumes(self) -> list[tuple[str, str]]:
        """Return the secrets with names of volumes, up to a maximum.

        :returns: their references, with the volumes' IDs
        :raises KeyUnavailable: if the key manager does not answer
        """
        found, first = [], 0
        while first < _MOST_OF_ALL:
            page = self._call('', lambda login: _page(
                login.manager, login.credentials, first))
            found += [(str(each.id), volume_id) for each in page
                      if each.id and (
                          volume_id := names.volume_of_secret(each.name))]
            if len(page) != _MOST:
                break
            first += _MOST
        return found

    # -- consumers of secrets, where the key manager supports them

    def consume(self, key: str, kind: str, resource_id: str) -> None:
        """Register a consumer, which protects a secret from deletion.

        :param kind: 'volumes' or 'snapshots'
        :param resource_id: the ID of the volume or snapshot
        """
        self._note('add_consumer', key, kind, resource_id)

    def release(self, key: str, kind: str, resource_id: str) -> None:
        """Remove a consumer."""
        with contextlib.suppress(_Gone):
            self._note('remove_consumer', key, kind, resource_id)

    def _note(self, method: str, key: str, kind: str, resource_id: str
              ) -> None:
        if not self._consumers:
            return
        try:
            self._ask(key, method, key, {
                'service': _SERVICE, 'resource_type': kind,
                'resource_id': resource_id})
        except NotImplementedError:
            self._consumers = False
            LOG.info('The key manager does not record who uses a secret: only '
                     'Cinder\'s database protects secrets from deletion.')

    # -- an owner's secret

    def owners_key(self, context: objects.Context, key: str | None) -> bytes:
        """Return the key of a volume that Nova encrypts, as Nova reads it.

        :param context: the owner's, with the token of the request
        :param key: the ID of the secret
        :raises KeyUnavailable: if the key manager does not answer
        :raises KeyUnreadable: if the owner may not read the secret
        """
        try:
            secret = self._call(str(key), lambda login: login.manager.get(
                context, key))
            return luks_header.opening_key(
                _bytes(secret), volume_types.KeyFormat.HEX)
        except encryption_exceptions.KeyRefused as exc:
            raise encryption_exceptions.KeyUnreadable(
                key=key, reason=exc.kwargs['reason'])
        except ValueError as exc:
            raise encryption_exceptions.KeyUnreadable(key=key, reason=exc)

    # -- calls

    def check(self) -> None:
        """Check that the key manager answers, without access to a secret.

        :raises KeyUnavailable: if it does not
        :raises KeyRefused: if it refuses this service
        """
        self._ask('', 'list', None, True)

    def project(self) -> str:
        """Return the name of the project with the secrets, or ''.

        :raises KeyUnavailable: as for :meth:`check`
        :raises KeyRefused: as for :meth:`check`
        """
        return str(self._call('', lambda login: getattr(
            login.credentials, 'project_name', '')) or '')

    def _ask(self, key: str, method: str, *args: typing.Any) -> typing.Any:
        try:
            return self._call(key, lambda login: getattr(
                login.manager, method)(login.credentials, *args))
        except _NotFound:
            # A proxy without a key manager answers so for all secrets.
            with contextlib.suppress(encryption_exceptions.KeyRefused):
                self.check()
            raise

    def _call(self, key: str, act: Callable[[Login], typing.Any]
              ) -> typing.Any:
        """Call the key manager, with a time limit.

        A call without an answer is abandoned; it has its own time limits. For
        :data:`TIMEOUT` seconds all further calls fail at once, so a sweep over
        many volumes does not wait for each of them.

        :param key: the reference of the secret, for errors
        """
        done: list[tuple[typing.Any, BaseException | None]] = []
        # join() with a time limit raises unexpected errors after its end,
        # under eventlet on Python 3.13.
        over = threading.Event()

        def call() -> None:
            try:
                with _silence():
                    done.append((act(self._open()), None))
            except BaseException as exc:
                done.append((None, exc))
            over.set()
        if time.monotonic() < self._silent:
            raise encryption_exceptions.KeyUnavailable(
                reason='it gave no answer within %s s a moment ago' %
                TIMEOUT)
        threading.Thread(target=call, daemon=True).start()
        over.wait(TIMEOUT)
        if not done:
            self._login = None
            self._silent = time.monotonic() + TIMEOUT
            raise encryption_exceptions.KeyUnavailable(
                reason='no answer within %s s' % TIMEOUT)
        answer, error = done[0]
        if error is not None:
            meaning = _meaning(error, key)
            if _status(error)[1] == 401 or isinstance(
                    meaning, encryption_exceptions.KeyUnavailable):
                # The endpoint, or the password of this service, may have
                # changed.
                self._login = None
            raise meaning from None
        return answer

    def _open(self) -> Login:
        login = self._login
        if login is None:
            login = self._login = Login(
                key_manager.API(CONF), self._credentials)
        return login

    def _credentials(self) -> typing.Any:
        if self._auth == KEY_MANAGER:
            return castellan_utils.credential_factory(CONF)
        return _of_authtoken()


class _NotFound(encryption_exceptions.KeyRefused):
    """The answering server does not know a secret."""


class _Gone(_NotFound):
    """The secret does not exist."""


def _of_authtoken() -> typing.Any:
    """Return credentials as Cinder makes them to delete a secret."""
    from castellan.common.credentials import keystone_password
    from keystoneauth1 import loading
    section = AUTHTOKEN
    loading.register_auth_conf_options(CONF, section)
    loading.load_auth_from_conf_options(CONF, section)  # registers the rest
    conf = CONF[section]
    return keystone_password.KeystonePassword(
        password=conf.password, auth_url=conf.auth_url,
        username=conf.username, user_domain_name=conf.user_domain_name,
        project_name=conf.project_name,
        project_domain_name=conf.project_domain_name)


def _named(manager: typing.Any, whose: typing.Any, name: str
           ) -> list[typing.Any]:
    """Return the secrets with a name.

    castellan lists only Barbican's first page.
    """
    if hasattr(manager, '_get_barbican_client'):
        return _listed(manager, whose, name=name)
    return list(manager.list(whose, metadata_only=True))


def _page(manager: typing.Any, whose: typing.Any, first: int
          ) -> list[typing.Any]:
    """Return a page of all secrets; all at once if not Barbican's.

    :param first: the number of secrets in earlier pages
    """
    if hasattr(manager, '_get_barbican_client'):
        return _listed(manager, whose, offset=first)
    return [] if first else list(manager.list(whose, metadata_only=True))


def _listed(manager: typing.Any, whose: typing.Any, **which: typing.Any
            ) -> list[typing.Any]:
    return [opaque_data.OpaqueData(
        None, name=each.name, id=each.secret_ref.rpartition('/')[2])
        for each in manager._get_barbican_client(whose).secrets.list(
            limit=_MOST, **which)]


def _check_name(key: str, secret: typing.Any, volume_id: str) -> None:
    """:raises KeyRefused: if a secret does not have a volume's name"""
    if volume_id and secret.name != names.secret(volume_id):
        raise encryption_exceptions.KeyRefused(
            key=key, reason='it is not named after volume %s' % volume_id)


def _is_shared(secret: typing.Any, volume_id: str) -> bool:
    """Return whether a volume may use a secret without its name.

    If the secret has the name of another volume, the key manager must list the
    volume as a consumer: see :meth:`Keys.consume`.
    """
    return not names.volume_of_secret(secret.name) or any(
        (each.get('resource_type'), each.get('resource_id')) == (
            'volumes', volume_id) for each in getattr(
                secret, 'consumers', None) or ())


def _bytes(secret: typing.Any) -> bytes:
    """:raises ValueError: if the secret has no bytes"""
    found = secret.get_encoded()
    return found.encode() if isinstance(found, str) else found or b''


def _meaning(error: BaseException, key: str) -> BaseException:
    """Convert an error of the key manager to an error of the driver.

    castellan's own errors lack the HTTP status; their causes have it.
    """
    if isinstance(error, (exceptions.LocalCloneError, NotImplementedError)):
        return error
    reason = '%s: %s' % (type(error).__name__, error)
    if isinstance(error, castellan_exception.ManagedObjectNotFoundError):
        return _Gone(key=key, reason='the secret does not exist')
    attribute, status = _status(error)
    if status == 404 and key:
        return _NotFound(key=key, reason=reason)
    # 404 without a key comes from a proxy in front of the key manager. 401 for
    # a new token comes from a key manager that can't reach Keystone, or has no
    # keys of it yet.
    passing = status in (*_LATER, 404) or (attribute, status) == (
        _NUMBERS[0], 401)
    refused = status in _NO and not passing or isinstance(
        error, (castellan_exception.Forbidden, KeyError)) or any(
            type(each).__name__ == _CONSUMED for each in _causes(error))
    if isinstance(error, (
            castellan_exception.AuthTypeInvalidError,
            castellan_exception.InsufficientCredentialDataError)) or (
                refused and not key):
        return encryption_exceptions.LoginRefused(key=key, reason=reason)
    if refused:
        return encryption_exceptions.KeyRefused(key=key, reason=reason)
    return encryption_exceptions.KeyUnavailable(reason=reason)


def _status(error: BaseException) -> tuple[str, int]:
    """Return the attribute and the value of an HTTP status."""
    for each in _causes(error):
        for attribute in _NUMBERS:
            found = getattr(each, attribute, None)
            if isinstance(found, int):
                return attribute, found
    return '', 0


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of this, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
