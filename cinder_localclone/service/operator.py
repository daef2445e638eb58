# SPDX-License-Identifier: Apache-2.0
"""The operator's command on one node: a backend, with or without root.

The backend is read from Cinder's own configuration. The command uses the same
code and the same locks as the volume service, in its own process.

Modules are imported in functions: Cinder's database layer and the message bus
take seconds on a small machine, and a restore at boot needs neither.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import os
import socket
import typing

from oslo_config import cfg

from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core import names
from cinder_localclone.core.volume import Volume
from cinder_localclone.service import options

if typing.TYPE_CHECKING:
    import cinder_localclone.core.boot_plan
    import cinder_localclone.core.formats.cryptsetup_cli
    import cinder_localclone.core.node
    import cinder_localclone.core.state
    import cinder_localclone.db.database
    import cinder_localclone.service.key_manager
    import cinder_localclone.service.rpc
    import cinder_localclone.storage.clones
    import cinder_localclone.storage.cryptsetup
    import cinder_localclone.storage.handles
    import cinder_localclone.storage.iscsi_initiator
    import cinder_localclone.storage.logical_volumes

#: Cinder's usual configuration file.
USUAL = '/etc/cinder/cinder.conf'
#: Seconds to wait for a peer.
TIMEOUT = 50
#: Parameters added to a database connection, in seconds, by the scheme of its
#: URL. With them a dead database fails a command within seconds.
DATABASE_LIMITS = {
    'postgresql': 'connect_timeout=5',
    'mysql+pymysql:': 'connect_timeout=5&read_timeout=15'}
#: Cinder's own options that are read here, copied from modules that take long
#: to import. A test compares the defaults.
NODE_OPTS = (
    cfg.StrOpt('host', default=socket.gethostname()),
    cfg.ListOpt('enabled_backends'),
    cfg.IntOpt('rpc_response_timeout', default=60))
SECTION_OPTS = (
    cfg.StrOpt('volume_driver'),
    cfg.StrOpt('backend_host'),
    cfg.StrOpt('volume_group', default='cinder-volumes'),
    cfg.StrOpt('lvm_type', default='auto'),
    *options.localclone_opts)
_FILES = 'file://'
Lock = Callable[[str], contextlib.AbstractContextManager[None]]


class Section:
    """A backend section, with defaults from ``backend_defaults``.

    Options are its attributes, as in Cinder's own ``Configuration``.
    """

    def __init__(self, conf: cfg.ConfigOpts, name: str):
        conf.register_opts(SECTION_OPTS, 'backend_defaults')
        conf.register_opts(SECTION_OPTS, name)
        for option in SECTION_OPTS:
            conf.set_default(option.dest, None, name)
        self._own = conf[name]
        self._shared = conf['backend_defaults']

    def __getattr__(self, option: str) -> typing.Any:
        value = getattr(self._own, option)
        return getattr(self._shared, option) if value is None else value

    def check(self) -> None:
        """Read all options.

        :raises ConfigFileValueError: if an option has an invalid value
        """
        for option in SECTION_OPTS:
            getattr(self, option.dest)


class Settings:
    """Cinder's configuration files on this node.

    :param files: their paths; None for the usual files
    """

    def __init__(self, files: list[str] | None = None):
        self.files = files
        self.conf = cfg.ConfigOpts()
        try:
            self.conf([], project='cinder', default_config_files=files)
        except cfg.ConfigFilesPermissionDeniedError as exc:
            raise errors.CommandError(
                '%s can\'t be read by this user. Run the command with sudo.'
                % ', '.join(exc.config_files))
        except UnicodeDecodeError as exc:
            raise errors.CommandError(
                'cinder.conf can\'t be read with the encoding %s. Set '
                'LC_ALL=C.UTF-8, or correct the file.' % exc.encoding)
        self.conf.register_opts(NODE_OPTS)
        self.host: str = self.conf.host
        self.rpc_timeout: int = self.conf.rpc_response_timeout

    @property
    def named(self) -> str:
        """The paths of the files, for messages."""
        return ', '.join(self.conf.config_file) or USUAL

    def missing(self) -> str:
        """Return why there is no configuration at all, or ''."""
        if self.conf.config_file or self.conf.config_dir:
            return ''
        try:
            os.stat(USUAL)
        except PermissionError:
            return ('%s can\'t be read by this user. Run the command with '
                    'sudo.' % USUAL)
        except OSError:
            pass
        return ('There is no %s. Pass --config-file, or run the command on a '
                'node of the backend.' % USUAL)

    def sections(self) -> dict[str, Section]:
        """Return the enabled backends of this driver by name."""
        named = {name: Section(self.conf, name)
                 for name in self.conf.enabled_backends or ()}
        return {name: section for name, section in named.items()
                if section.volume_driver == options.DRIVER}


class Backend:
    """A backend section on this node.

    :param name: the name of the section; None for the only section
    :raises CommandError: if the section is missing or ambiguous
    """

    def __init__(self, settings: Settings, name: str | None = None):
        sections = settings.sections()
        if not sections and settings.missing():
            raise errors.CommandError(settings.missing())
        if not sections:
            raise errors.CommandError(
                'No enabled backend in %s uses this driver. Pass '
                '--config-file, or run the command on a node of the backend.'
                % settings.named)
        if name is None and len(sections) > 1:
            raise errors.CommandError(
                '%s has several backends of this driver: %s. Choose one with '
                '--backend.' % (settings.named, ', '.join(sections)))
        if name is not None and name not in sections:
            raise errors.CommandError(
                'No enabled backend "%s" in %s uses this driver; %s does.' % (
                    name, settings.named, ' or '.join(sections)))
        self.settings = settings
        self.name = name or next(iter(sections))
        self.conf = sections[self.name]
        self.host = '%s@%s' % (self.conf.backend_host or settings.host,
                               self.name)
        self._loaded = False

    # -- this node

    def lvm(self) -> 'cinder_localclone.storage.logical_volumes.Lvm':
        """Return the logical volumes of this node."""
        from cinder_localclone.storage import logical_volumes
        group = self.conf.volume_group
        pool = None if self.conf.lvm_type == 'default' else group + '-pool'
        return logical_volumes.Lvm(
            group, pool, self.conf.localclone_metadata_volume_group or group,
            self.conf.localclone_command_timeout,
            stripes=self.conf.localclone_thick_stripes)

    def handles(self) -> 'cinder_localclone.storage.handles.Handles':
        """Return the handles of this node."""
        from cinder_localclone.storage import handles
        return handles.Handles(self.lvm())

    def clones(self) -> 'cinder_localclone.storage.clones.Clones':
        """Return the dm-clone devices of this node."""
        from cinder_localclone.storage import clones
        return clones.Clones(self.lvm(), self.handles())

    def sessions(self) -> 'cinder_localclone.storage.iscsi_initiator.Sessions':
        """Return the iSCSI sessions of this node."""
        from cinder_localclone.storage import iscsi_initiator
        return iscsi_initiator.Sessions(self.conf.localclone_command_timeout,
                                        self.conf.localclone_source_timeout,
                                        self.host)

    # -- all nodes

    def load_cinder(self) -> None:
        """Import Cinder's code, and read the configuration for it.

        Services wait for a database that is down; a command fails at once.
        """
        if self._loaded:
            return
        from cinder.common import config  # noqa: F401, registers options
        from cinder import objects
        from cinder import version
        conf = cfg.CONF
        conf([], project='cinder', version=version.version_string(),
             default_config_files=self.settings.files)
        objects.register_all()
        conf.set_override('max_retries', 0, 'database')
        for begin, limits in DATABASE_LIMITS.items():
            if (conf.database.connection or '').startswith(begin):
                configured = conf.database.connection_parameters
                conf.set_override(
                    'connection_parameters', '&'.join(
                        filter(None, (configured, limits))), 'database')
        self._loaded = True

    def connect(self) -> None:
        """Connect the message bus."""
        self.load_cinder()
        from cinder import rpc
        if not rpc.initialized():
            rpc.init(cfg.CONF)

    @property
    def peers(self) -> 'cinder_localclone.service.rpc.Client':
        """The volume services, over the message bus."""
        self.connect()
        from cinder_localclone.service import rpc as rpc_module
        return rpc_module.Client(TIMEOUT)

    @property
    def db(self) -> 'cinder_localclone.db.database.Database':
        """Cinder's database."""
        self.load_cinder()
        from cinder_localclone.db import database
        return database.database()

    def crypt(self) -> 'cinder_localclone.storage.cryptsetup.Cryptsetup':
        """Return cryptsetup on this node."""
        from cinder_localclone.storage import cryptsetup
        return cryptsetup.Cryptsetup(
            self.conf.volume_group, self.conf.localclone_command_timeout,
            self.conf.localclone_header_backup_dir or '',
            options.sealed_keys(self.conf), self.conf.localclone_key_cache_dir,
            self.name)

    def keys(self) -> 'cinder_localclone.service.key_manager.Keys':
        """Return the key manager, with the credentials of the service."""
        self.load_cinder()
        from cinder_localclone.service import key_manager
        return key_manager.Keys(self.conf.localclone_key_auth)

    def nodes(self) -> dict[str, bool]:
        """Return the service hosts of this backend, with their liveness."""
        return {host: alive
                for host,
                alive in sorted(self.db.services.alive_by_host().items())
                if host.partition('@')[2] == self.name}

    def call(self, host: str, name: str, *arguments: typing.Any
             ) -> typing.Any:
        """Call a method of a node; see :mod:`cinder_localclone.core.rpc`.

        :param name: the name of the method on the message bus
        :raises LocalCloneError: if the node does not answer, or by the method
        """
        peers = self.peers
        from cinder_localclone.core import rpc
        from cinder_localclone.service import endpoint  # noqa: F401, methods
        method = rpc.METHODS[name]
        return peers.call(host, method, method.bind(*arguments))

    def ask(self, host: str, name: str, *arguments: typing.Any
            ) -> tuple[typing.Any, str]:
        """Call a method; return (answer, '') or (None, error)."""
        try:
            return self.call(host, name, *arguments), ''
        except exceptions.LocalCloneError as exc:
            return None, str(exc)

    def find(self, name: str) -> str:
        """Return the ID of the volume with a name or ID in this backend.

        :raises CommandError: if there is no such volume, or more than one
        """
        if not name:
            raise errors.CommandError('The name of the volume is empty.')
        if not name.isascii() and any(
                '\udc80' <= each <= '\udcff' for each in name):
            raise errors.CommandError(
                'The name of the volume can\'t be read with the encoding of '
                'this terminal. Set LC_ALL=C.UTF-8, or pass the ID.')
        found = self.db.inventory.ids_named(name, self.name)
        if not found:
            raise errors.CommandError(
                'There is no volume %s in the backend %s.' % (
                    name, self.name))
        if len(found) > 1:
            raise errors.CommandError(
                'There are %d volumes called %s; pass an ID: %s.' % (
                    len(found), name, ', '.join(found)))
        return found[0]

    def volume(self, volume_id: str) -> tuple[
            typing.Any, 'cinder_localclone.core.state.Move | None']:
        """Return a volume and its current move; either may be None.

        :raises CommandError: if neither exists, and no cleanup is pending
        """
        volume = self.db.volumes.volume(volume_id)
        move = self.db.moves.move_of(volume_id)
        if volume is None and move is None and (
                not self.db.moves.pending_cleanups(volume_id)):
            raise errors.CommandError('There is no volume %s.' % volume_id)
        return volume, move


def act_as_root(settings: Settings | None) -> None:
    """Do privileged work in this process instead of a daemon.

    Protect the memory from swap and core dumps, because it may hold a key.

    :param settings: the source of directories and volume groups; None for none
    :raises CommandError: if the process is not root's
    """
    if os.geteuid():
        raise errors.CommandError('This command needs root: run it with sudo.')
    from os_brick import privileged as brick
    from oslo_privsep import priv_context

    from cinder_localclone.storage import privsep
    from cinder_localclone.storage.privsep import configuration
    from cinder_localclone.storage.privsep import cryptsetup_keys
    from cinder_localclone.storage.privsep import memory
    memory.protect()
    if settings:
        configuration.use(settings.conf.config_file)
    of_brick = [each for each in vars(brick).values()  # as many as it has
                if isinstance(each, priv_context.PrivContext)]
    for context in (privsep.default, cryptsetup_keys.context, *of_brick):
        context.set_client_mode(False)


def lv_of(volume: Volume | None) -> str | None:
    """Return the name of a volume's LV."""
    return volume.name if volume is not None else None


def home_of(volume: Volume | None) -> str | None:
    """Return the service host of a volume, without the pool."""
    return volume.home if volume is not None else None


def hosts_of(
        volume: typing.Any, move: 'cinder_localclone.core.state.Move | None',
        pending: 'Iterable[cinder_localclone.core.state.Move]' = ()) -> list[
            str]:
    """Return the service hosts involved with a volume.

    :param pending: its ended moves with pending cleanups
    """
    hosts = {move.destination, move.source} if move else {home_of(volume)}
    hosts |= {each.cleanup_node for each in pending}
    return sorted(host for host in hosts if host)


def node(backend: Backend) -> 'cinder_localclone.core.node.Node':
    """Return the node of a backend, as its service has it."""
    backend.connect()
    from cinder import coordination
    from cinder.volume import configuration
    from cinder.volume import driver
    from cinder.volume.drivers import lvm
    from oslo_config import cfg

    from cinder_localclone.service import assembly
    from cinder_localclone.service import options
    conf = configuration.Configuration(
        driver.volume_opts + lvm.volume_opts + options.localclone_opts,
        config_group=backend.name)
    found = assembly.assemble(
        conf, backend.host, backend.name, backend.lvm().pool).node
    owner = owner_of_locks(cfg.CONF.coordination.backend_url)
    with acting_as(owner):
        coordination.COORDINATOR.start()
    return dataclasses.replace(found, lock=_as_owner(found.lock, owner))


def owner_of_locks(url: str) -> tuple[int, int] | None:
    """Return the owner of lock files; None if locks are no files.

    :param url: the URL of Cinder's coordination backend
    :returns: user and group
    """
    if not url.startswith(_FILES):
        return None
    found = os.stat(url.removeprefix(_FILES))
    return found.st_uid, found.st_gid


@contextlib.contextmanager
def acting_as(owner: tuple[int, int] | None) -> Iterator[None]:
    """Create files as another user within the context.

    A lock file of root would lock out the volume service permanently.
    """
    if owner is None or owner == (0, 0):
        yield
        return
    user, group = owner
    os.setegid(group)
    try:
        os.seteuid(user)
        try:
            yield
        finally:
            os.seteuid(0)
    finally:
        os.setegid(0)


def _as_owner(lock: Lock, owner: tuple[int, int] | None) -> Lock:
    @contextlib.contextmanager
    def locked(name: str) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with acting_as(owner):
                held.enter_context(lock(name))
            yield
    return locked


# -- this node's encrypted volumes

def unlock(backend: Backend, seconds: float, only: str | None = None
           ) -> 'list[cinder_localclone.core.boot_plan.Outcome]':
    """Open the volumes that were open before this node went down.

    :param seconds: the time limit; the volume service opens the rest
    :param only: the ID of a single volume to open
    """
    from cinder_localclone.encryption import upkeep
    crypt = backend.crypt()
    remotes = upkeep.noted_of(crypt, backend.sessions().recorded_remotes())
    return upkeep.unlock(
        backend.lvm(), backend.handles(), remotes, crypt, backend.keys(),
        seconds, only)


def locked(backend: Backend
           ) -> 'list[cinder_localclone.core.boot_plan.Outcome]':
    """Return the closed volumes that :func:`unlock` opens, with reasons."""
    from cinder_localclone.encryption import upkeep
    crypt = backend.crypt()
    remotes = upkeep.noted_of(crypt, backend.sessions().recorded_remotes())
    return upkeep.locked(backend.handles(), remotes, crypt, backend.keys())


def open_wanted(backend: Backend, volume_ids: Collection[str] = ()
                ) -> 'list[cinder_localclone.core.boot_plan.Outcome]':
    """Open the volumes with attachments on this node.

    :param volume_ids: the only volumes to open; none for all
    """
    from cinder_localclone.encryption import upkeep
    return upkeep.open_wanted(node(backend), volume_ids)


def reencrypt(backend: Backend, volume_id: str) -> None:
    """Become the process that re-encrypts a volume; do not return.

    :raises CommandError: if the volume has no re-encryption
    """
    from cinder_localclone.core.formats import cryptsetup_cli
    from cinder_localclone.encryption import operator
    from cinder_localclone.storage.privsep import reencrypt_process
    crypt = backend.crypt()
    header = crypt.header(volume_id)
    if header.reencryption is None:
        raise errors.CommandError(
            'Volume %s is not being re-encrypted.' % volume_id)
    key, zone = operator.key_to_reencrypt(
        crypt, backend.keys(), backend.handles().survey(), volume_id, header)
    reencrypt_process.become_cryptsetup(
        volume_id, key, header.reencryption.resilience,
        cryptsetup_cli.zone(zone))


def reencryptions(volume_ids: Collection[str]) -> tuple[
        frozenset[str],
        'dict[str, cinder_localclone.core.formats.cryptsetup_cli.Progress]']:
    """Return the running re-encryptions of volumes, with their progress.

    :param volume_ids: the volumes with the tag of a re-encryption
    :returns: IDs of volumes with a running process; progress by volume ID
    """
    from cinder_localclone.core.formats import cryptsetup_cli
    from cinder_localclone.storage.privsep import reencrypt_process
    if not volume_ids:
        return frozenset(), {}
    said = {
        volume_id: cryptsetup_cli.last_progress(
            reencrypt_process.progress_output(volume_id))
        for volume_id in volume_ids if names.is_id(volume_id)}
    return frozenset(reencrypt_process.running()), {
        volume_id: each for volume_id, each in said.items() if each}
