# SPDX-License-Identifier: Apache-2.0
"""Secrets of encrypted volumes, in Cinder's key manager.

Secrets of volumes that the driver encrypts belong to the service's project,
so a node can read them when it starts. Secrets of volumes that Nova encrypts
belong to the volume's owner, and only the owner's token reads them.

A key stays in the memory of its user, for a short time. No message, record or
log contains a key.

castellan logs in to Keystone for each call, which takes about a second; a call
itself takes a tenth of that. So the client of the service's own credentials is
used again. keystoneauth gets a new token before the old one ends, or when one
is refused. A request of an owner has its own credentials and its own client:
one owner must not read the secrets of another.
"""

from collections.abc import Callable
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

#: Seconds to wait for an answer of the key manager. It has to be well below
#: localclone_peer_timeout: a node that a volume moves to asks for its key
#: while the other node waits.
TIMEOUT = 15
#: Where the credentials are, by what localclone_key_auth says.
KEY_MANAGER, AUTHTOKEN = 'key_manager', 'keystone_authtoken'
#: What a key manager answers that says no, and would say it again.
_NO = range(400, 500)
#: The same, where it may say something else next time.
_LATER = (408, 425, 429)
#: Where errors have an answer's number: barbicanclient's, and keystoneauth's.
_NUMBERS = ('status_code', 'http_status')
#: Most secrets of one name that are looked for.
_MOST = 100
#: Most secrets that are looked at for those of volumes that are gone.
_MOST_OF_ALL = 20 * _MOST
#: Characters of a volume's id.
_ID = 36
#: At "debug" these log what is sent and received: secrets, too.
_TALKATIVE = ('keystoneauth.session', 'barbicanclient.client',
              'barbicanclient.v1.client', 'barbicanclient.v1.secrets')

#: How castellan's Barbican gets a client. Other key managers keep their own.
_MAKES = '_get_barbican_client'


class _Silence(python_logging.Filter):
    """Leaves out what is logged while this thread has a secret in hand."""

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
    """A key manager of castellan's, and who this service is to it.

    Several threads may use it at once: each makes a client if there is none,
    and the last one stays.

    :param manager: as castellan has made it, for nobody else
    :param credentials: makes this service's, when they are needed: an
        owner's secret is read without
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
        """This service's, always the same."""
        if self._credentials is None:
            self._credentials = self._make_credentials()
        return self._credentials

    def client(self, whose: typing.Any) -> typing.Any:
        """Barbican's client for some credentials."""
        make = typing.cast(Callable[[typing.Any], typing.Any], self._make)
        if whose is not self._credentials:
            return make(whose)
        client = self._client
        if client is None:
            client = self._client = make(whose)
        return client


class Keys(crypt.Keys):
    """What this service has in the key manager.

    :param auth: whose credentials it uses: those in the section of this name
    """

    def __init__(self, auth: str):
        self._auth = auth
        #: None: the next call logs in.
        self._login: Login | None = None
        self._consumers = True
        #: Until when it is not asked, since it did not answer.
        self._silent = 0.0

    # -- the driver's own secrets

    def create(self, volume_id: str, key_format: volume_types.KeyFormat =
               volume_types.KeyFormat.HEX) -> str:
        """Store a new secret, named after a volume.

        :returns: its reference
        :raises KeyUnavailable: if there is no answer. It may be stored, or
            will be: :meth:`find` has it then
        :raises KeyRefused: if it is not to be stored
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
        """Return the bytes that open a volume.

        :param key: reference of its secret
        :param volume_id: the volume that the secret must be named after; '':
            a row names the secret, which may be that of a type
        :param or_shared: also a secret that is named after no volume, as that
            of a type is; or one that the volume shares with the volume that
            it was made of: then the key manager says that it uses the secret
        :raises KeyUnavailable: if there is no answer
        :raises KeyRefused: if there is no such secret, or not for this
            service; or if the name is another
        """
        secret = self._ask(key, 'get', key)
        if not (or_shared and _is_shared(secret, volume_id)):
            _check_name(key, secret, volume_id)
        try:
            found = _bytes(secret)
            if names.is_secret(secret.name or ''):
                luks_header.check_own_key(found, key_format)
            return luks_header.opening_key(found, key_format)
        except ValueError as exc:
            raise encryption_exceptions.KeyRefused(key=key, reason=exc)

    def get_again(self, key: str, key_format: volume_types.KeyFormat,
                  volume_id: str = '') -> bytes:
        """Return the same as :meth:`get`, over a new login.

        A secret is proven by this before another one that opens the volume
        goes: one wrong answer must not be the proof of itself.

        :raises KeyUnavailable: as :meth:`get`
        :raises KeyRefused: as :meth:`get`
        """
        self._login = None
        return self.get(key, key_format, volume_id)

    def check_shared(self, key: str) -> None:
        """Check that a secret may be that of all volumes of a type.

        :raises KeyUnavailable: as :meth:`get`
        :raises KeyRefused: if it is named after a volume, and goes with it
        """
        name = self._ask(key, 'get', key, True).name or ''
        if names.is_secret(name):
            raise encryption_exceptions.KeyRefused(
                key=key, reason='it is the secret of volume %s and can\'t be '
                'that of a type; store another secret for the type' % (
                    name[-_ID:]))

    def remove(self, key: str, volume_id: str = '') -> None:
        """Delete a secret; one that is gone is.

        Only who has seen that no row names it may: see
        :mod:`.secrets`. One that is not named after a volume is
        somebody else's, whose volumes share it: that stays.

        :param volume_id: the volume that the secret must be named after; '':
            a row has named the secret
        :raises KeyUnavailable: if there is no answer
        :raises KeyRefused: if somebody still uses it, or if the name is
            another
        """
        with contextlib.suppress(_Gone):
            found = self._ask(key, 'get', key, True)
            if names.is_secret(found.name or ''):
                _check_name(key, found, volume_id)
                self._ask(key, 'delete', key)

    def find(self, volume_id: str) -> list[str]:
        """The secrets that are named after a volume, with or without use.

        :raises KeyUnavailable: if there is no answer
        """
        name = names.secret(volume_id)
        return sorted(
            str(each.id) for each in self._call(
                '', lambda login: _named(
                    login.manager, login.credentials, name))
            if each.name == name and each.id)

    def of_volumes(self) -> list[tuple[str, str]]:
        """All secrets that are named after volumes, as many as are listed.

        :returns: their references, with the ids of the volumes
        :raises KeyUnavailable: if there is no answer
        """
        found, first = [], 0
        while first < _MOST_OF_ALL:
            page = self._call('', lambda login: _page(
                login.manager, login.credentials, first))
            found += [(str(each.id), each.name[-_ID:]) for each in page
                      if each.id and names.is_secret(each.name or '')]
            if len(page) != _MOST:
                break
            first += _MOST
        return found

    # -- who uses a secret, where the key manager keeps that

    def consume(self, key: str, kind: str, resource_id: str) -> None:
        """Keep others from deleting a secret.

        :param kind: 'volumes' or 'snapshots'
        :param resource_id: of the one that uses it
        """
        self._note('add_consumer', key, kind, resource_id)

    def release(self, key: str, kind: str, resource_id: str) -> None:
        """Undo that."""
        with contextlib.suppress(_Gone):
            self._note('remove_consumer', key, kind, resource_id)

    def _note(self, method: str, key: str, kind: str, resource_id: str
              ) -> None:
        if not self._consumers:
            return
        try:
            self._ask(key, method, key, {
                'service': 'volume', 'resource_type': kind,
                'resource_id': resource_id})
        except NotImplementedError:
            self._consumers = False
            LOG.info('The key manager does not record who uses a secret: only '
                     'Cinder\'s database protects secrets from deletion.')

    # -- an owner's secret

    def owners_key(self, context: objects.Context, key: str) -> bytes:
        """What opens a volume that Nova encrypts, as Nova reads it.

        :param context: the owner's, with the token of the request
        :param key: id of the secret
        :raises KeyUnavailable: if there is no answer
        :raises KeyUnreadable: if the owner may not read it
        """
        try:
            secret = self._call(key, lambda login: login.manager.get(
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
        """Prove that the key manager answers; nothing is stored or read.

        :raises KeyUnavailable: if it does not
        :raises KeyRefused: if it does not know this service
        """
        self._ask('', 'list', None, True)

    def project(self) -> str:
        """Return the name of the project that the secrets are of, or ''.

        :raises KeyUnavailable: as :meth:`check`
        :raises KeyRefused: as :meth:`check`
        """
        return str(self._call('', lambda login: getattr(
            login.credentials, 'project_name', '')) or '')

    def _ask(self, key: str, method: str, *args: typing.Any) -> typing.Any:
        try:
            return self._call(key, lambda login: getattr(
                login.manager, method)(login.credentials, *args))
        except _NotFound:
            # A proxy without a key manager behind it says so of all secrets.
            with contextlib.suppress(encryption_exceptions.KeyRefused):
                self.check()
            raise

    def _call(self, key: str, act: Callable[[Login], typing.Any]
              ) -> typing.Any:
        """Ask, and wait for as long as is allowed.

        What does not answer is left behind: it has time limits of its own.
        For as long again nobody else waits for it: a look at many volumes
        would take that long for each.

        :param key: for errors
        """
        done: list[tuple[typing.Any, BaseException | None]] = []
        # join() with a time limit raises what nobody expects when it is over,
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
                # It may be elsewhere by now, or know this service by another
                # password.
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
    """What answers knows nothing of a secret."""


class _Gone(_NotFound):
    """There is no such secret."""


def _of_authtoken() -> typing.Any:
    """Credentials as Cinder makes them to delete a secret."""
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
    """The secrets of a name. castellan lists no more than Barbican's first."""
    if hasattr(manager, '_get_barbican_client'):
        return _listed(manager, whose, name=name)
    return list(manager.list(whose, metadata_only=True))


def _page(manager: typing.Any, whose: typing.Any, first: int
          ) -> list[typing.Any]:
    """Some of all secrets; other key managers list all of them at once.

    :param first: how many were seen already
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
    """:raises KeyRefused: if a secret is not named after a volume"""
    if volume_id and secret.name != names.secret(volume_id):
        raise encryption_exceptions.KeyRefused(
            key=key, reason='it is not named after volume %s' % volume_id)


def _is_shared(secret: typing.Any, volume_id: str) -> bool:
    """Whether a volume may have a secret that is not named after it.

    Of a secret that is named after another volume the key manager itself has
    to say so: see :meth:`Keys.consume`.
    """
    return not names.is_secret(secret.name or '') or any(
        (each.get('resource_type'), each.get('resource_id')) == (
            'volumes', volume_id) for each in getattr(
                secret, 'consumers', None) or ())


def _bytes(secret: typing.Any) -> bytes:
    """:raises ValueError: if it has none"""
    found = secret.get_encoded()
    return found.encode() if isinstance(found, str) else found or b''


def _meaning(error: BaseException, key: str) -> BaseException:
    """What an error of the key manager says to whoever has to go on.

    castellan's own errors leave out the answer's number; what they are
    raised for has it.
    """
    if isinstance(error, (exceptions.LocalCloneError, NotImplementedError)):
        return error
    reason = '%s: %s' % (type(error).__name__, error)
    if isinstance(error, castellan_exception.ManagedObjectNotFoundError):
        return _Gone(key=key, reason='the secret does not exist')
    attribute, status = _status(error)
    if status == 404 and key:
        return _NotFound(key=key, reason=reason)
    # A proxy says 404 of the key manager. That which does not know a token,
    # got a moment ago, can't ask Keystone, or has not its keys yet.
    passing = status in (*_LATER, 404) or (attribute, status) == (
        _NUMBERS[0], 401)
    refused = status in _NO and not passing or isinstance(
        error, (castellan_exception.Forbidden, KeyError,
                castellan_exception.AuthTypeInvalidError,
                castellan_exception.InsufficientCredentialDataError))
    if refused:
        return encryption_exceptions.KeyRefused(key=key, reason=reason)
    return encryption_exceptions.KeyUnavailable(reason=reason)


def _status(error: BaseException | None) -> tuple[str, int]:
    """Return the number of an answer, and which attribute has it."""
    while error is not None:
        for attribute in _NUMBERS:
            found = getattr(error, attribute, None)
            if isinstance(found, int):
                return attribute, found
        error = error.__cause__ or error.__context__
    return '', 0
