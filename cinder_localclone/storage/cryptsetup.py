# SPDX-License-Identifier: Apache-2.0
"""LUKS headers, their backups, and re-encryption processes of a backend.

:mod:`.activate` knows which key belongs to a volume. The backups are files on
this node. :mod:`.reencrypt_process` starts a process for each re-encryption.

Each method may raise CommandFailed, CommandTimeout, and the errors of
:mod:`.encryption_exceptions`.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os

from oslo_log import log as logging
from oslo_utils import units

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import header_notes
from cinder_localclone.core.interfaces import crypt
from cinder_localclone.core import names
from cinder_localclone.core import volume_types
from cinder_localclone.storage import devices
from cinder_localclone.storage.privsep import block
from cinder_localclone.storage.privsep import cryptsetup
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import dmsetup
from cinder_localclone.storage.privsep import header_backups
from cinder_localclone.storage.privsep import lvm
from cinder_localclone.storage.privsep import reencrypt_process
from cinder_localclone.storage.privsep import sealed_keys

LOG = logging.getLogger(__name__)

#: Bytes zeroed by a single command. Each command has the time limit.
ZEROED_AT_ONCE = 1 << 28


class HeaderFiles:
    """Files with headers of volumes.

    :param timeout: limit of each command, seconds
    :param backups: directory of the backups; '' for none
    :param backend: section of the backend, by which the privileged daemon
        finds the same directory in its own configuration
    """

    def __init__(self, timeout: float, backups: str = '', backend: str = ''):
        self.timeout = timeout
        self.backups = backups
        self.backend = backend

    def back_up(self, volume_id: str, what: str = '1') -> None:
        if not self.backups:
            return
        try:
            header_backups.make(
                names.handle_path(volume_id), self.backend,
                names.header_backup(volume_id, what), self.timeout)
        except (exceptions.LocalCloneError, OSError) as exc:
            LOG.error('The header of volume %(volume)s was not backed up to '
                      '%(directory)s: %(error)s', {
                          'volume': volume_id, 'directory': self.backups,
                          'error': exc})

    def renew_backup(self, volume_id: str, header: luks_header.Header,
                     key: bytes) -> None:
        if not self.backups:
            return
        with self._saying_where(volume_id):
            name = header_backups.add(names.handle_path(volume_id),
                                      self.backend, self.timeout)
            try:
                if self.backed_up(volume_id, name) != header:
                    raise encryption_exceptions.ForeignHeader(
                        path=names.handle_path(volume_id),
                        reason='it was changed after the driver\'s check')
                if key:
                    self.test_backup(volume_id, name, key)
            except Exception:
                # A backup left here is compared by the next check of the node.
                with contextlib.suppress(exceptions.LocalCloneError, OSError):
                    header_backups.remove(self.backend, volume_id, name)
                raise
            header_backups.keep_only(self.backend, volume_id, name)

    def backup_names(self, volume_id: str) -> list[str]:
        return header_backups.listed(
            self.backend, volume_id) if self.backups else []

    def backed_up(self, volume_id: str, name: str) -> luks_header.Header:
        try:
            return luks_header.parse(header_backups.dump(
                self.backend, volume_id, name, self.timeout))
        except ValueError as exc:
            raise encryption_exceptions.HeaderDamaged(path=os.path.join(
                self.backups, volume_id, name), reason=exc)

    def test_backup(self, volume_id: str, name: str, key: bytes,
                    slot: str | None = None) -> None:
        cryptsetup_keys.test_backup(self.backend, volume_id, name, key,
                                    self.timeout, slot)

    def save(self, volume_id: str) -> None:
        with self._saying_where(volume_id):
            header_backups.save_beginning(
                names.handle_path(volume_id), self.backend,
                volume_types.HEADER_BYTES, self.timeout)

    def restore(self, volume_id: str, name: str, drop: Sequence[str]
                ) -> None:
        header_backups.restore(names.handle_path(volume_id), self.backend,
                               name, drop, self.timeout)

    @contextlib.contextmanager
    def _saying_where(self, volume_id: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise encryption_exceptions.NoBackup(
                volume=volume_id, directory=self.backups, reason=exc)

    def keeps_backups(self) -> bool:
        return bool(self.backups)

    def backup_space(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.backups)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def backed_up_volumes(self) -> list[str]:
        return header_backups.volumes(self.backend) if self.backups else []

    def drop_backups(self, volume_id: str) -> None:
        if self.backups:
            header_backups.drop(self.backend, volume_id)


class Cryptsetup(HeaderFiles, crypt.Crypt):
    """cryptsetup on this node.

    :param group: volume group of the volumes
    :param timeout: limit of each command, seconds
    :param backups: directory of header backups; '' for none
    :param sealed: directory of sealed keys; '' if no keys are kept
    :param before: configured directory of sealed keys, even if no keys are
        kept now
    :param backend: section of the backend, by which the privileged daemon
        finds the same directories in its own configuration
    """

    def __init__(self, group: str, timeout: float, backups: str = '',
                 sealed: str = '', before: str = '', backend: str = ''):
        super().__init__(timeout, backups, backend)
        self.sealed = sealed
        self.before = before
        self.group = group
        # of the group; read on demand
        self._tags: tuple[int, list[str]] = -1, []

    # -- headers

    def header(self, volume_id: str,
               repair: bool = False) -> luks_header.Header:
        path = names.handle_path(volume_id)
        try:
            return luks_header.parse(cryptsetup.dump(path, self.timeout,
                                                     repair))
        except ValueError as exc:
            raise encryption_exceptions.HeaderDamaged(path=path, reason=exc)

    def uuid(self, volume_id: str) -> str:
        return cryptsetup.luks_uuid(names.handle_path(volume_id), self.timeout)

    def set_uuid(self, volume_id: str, uuid: str) -> None:
        cryptsetup.set_uuid(names.handle_path(volume_id), uuid, self.timeout)

    def damaged_copies(self, volume_id: str) -> list[str]:
        return cryptsetup.damaged_copies(names.handle_path(volume_id),
                                         self.timeout)

    def format(self, volume_id: str, wanted: cryptsetup_cli.NewHeader,
               key: bytes) -> None:
        cryptsetup_keys.format_luks2(names.handle_path(volume_id), wanted, key,
                                     self.timeout)

    def format_luks1(self, volume_id: str, cipher: str, key_bits: int,
                     key: bytes) -> None:
        cryptsetup_keys.format_luks1(names.handle_path(volume_id), cipher,
                                     key_bits, key, self.timeout)

    def write_token(self, volume_id: str, number: str, token: str,
                    replace: bool = False) -> None:
        cryptsetup.import_token(names.handle_path(volume_id), token, number,
                                replace, self.timeout)

    def remove_token(self, volume_id: str, number: str) -> None:
        cryptsetup.remove_token(
            names.handle_path(volume_id), number, self.timeout)

    def add_key(self, volume_id: str, key: bytes, new_key: bytes, slot: str,
                derivation: cryptsetup_cli.Derivation) -> None:
        cryptsetup_keys.add_key(names.handle_path(volume_id), key, new_key,
                                slot, derivation, self.timeout)

    def kill_slot(self, volume_id: str, slot: str, key: bytes) -> None:
        cryptsetup_keys.kill_slot(names.handle_path(volume_id), slot, key,
                                  self.timeout)

    def test(self, volume_id: str, key: bytes, slot: str | None = None
             ) -> None:
        cryptsetup_keys.test(
            names.handle_path(volume_id), key, self.timeout, slot)

    def erase(self, volume_id: str) -> None:
        # os-brick may have turned the handle's path to another device.
        dmsetup.ensure_devnode(names.handle(volume_id))
        cryptsetup.erase(names.handle_path(volume_id), self.timeout)

    def check_reencrypts(self, volume_id: str) -> None:
        # An older cryptsetup begins a re-encryption, but can't resume it.
        found, new_enough = cryptsetup_cli.version(
            cryptsetup.version(self.timeout))
        if not new_enough:
            raise encryption_exceptions.CannotReencrypt(
                volume=volume_id, reason='this node has %s, and %s or later '
                'is needed' % (found or 'an unknown cryptsetup', '.'.join(
                    map(str, cryptsetup_cli.NEEDED))))

    def begin_reencryption(self, volume_id: str, slot: str,
                           wanted: cryptsetup_cli.Reencryption, key: bytes
                           ) -> None:
        cryptsetup_keys.begin_reencryption(
            names.handle_path(volume_id), names.crypt(volume_id), slot,
            wanted, key, self.timeout)

    def end_reencryption(self, volume_id: str, key: bytes) -> None:
        cryptsetup_keys.end_reencryption(names.handle_path(volume_id), key,
                                         self.timeout)

    def test_ended(self, volume_id: str, key: bytes) -> None:
        cryptsetup_keys.test_ended(
            names.handle_path(volume_id), key, self.timeout)

    # -- the crypt device

    def open(self, volume_id: str, key: bytes, keep_header: bool = False,
             discards: bool = False, readonly: bool = False) -> None:
        cryptsetup_keys.open_device(
            names.handle_path(volume_id), names.crypt(volume_id), key,
            self.timeout, readonly, keep_header, discards)

    def opened(self, volume_id: str) -> dm_tables.Device | None:
        name = names.crypt(volume_id)
        return devices.own_devices(self.timeout, [name]).get(name)

    def remove_stray_integrity(self, volume_id: str) -> None:
        with contextlib.suppress(exceptions.CommandFailed):  # it is in use
            cryptsetup.remove_integrity(
                names.integrity(volume_id), self.timeout)

    def size(self, volume_id: str) -> int:
        return block.size(names.crypt_path(volume_id))

    # -- keys kept on this node

    def seal(self, volume_id: str, recorded: str, key: bytes) -> None:
        try:
            if self.sealed:
                sealed_keys.seal(self.backend, volume_id, recorded, key,
                                 self.timeout)
            else:
                self.forget_sealed(volume_id)
        except (exceptions.LocalCloneError, OSError) as exc:
            LOG.warning('The key of volume %(volume)s is not kept on this '
                        'node: %(error)s', {
                            'volume': volume_id, 'error': (
                                'systemd-creds is not installed (systemd 250 '
                                'or later has it)') if isinstance(
                                    exc, FileNotFoundError) else exc})

    def open_sealed(self, volume_id: str, recorded: str,
                    keep_header: bool = False, discards: bool = False,
                    readonly: bool = False) -> None:
        sealed_keys.open_device(
            names.handle_path(volume_id), names.crypt(volume_id),
            self._keeper(), recorded, self.timeout, readonly, keep_header,
            discards)

    def end_reencryption_sealed(self, volume_id: str, recorded: str) -> None:
        sealed_keys.end_reencryption(names.handle_path(volume_id),
                                     self._keeper(), recorded, self.timeout)

    def resize_sealed(self, volume_id: str, recorded: str) -> None:
        sealed_keys.resize(names.crypt(volume_id), self._keeper(), recorded,
                           self.timeout)

    def _keeper(self) -> str:
        """Return the backend section whose directory has the sealed keys.

        :raises NotSealed: if no keys are kept
        """
        if not self.sealed:
            raise encryption_exceptions.NotSealed(
                path='of this node', reason='localclone_key_cache is none')
        return self.backend

    def forget_sealed(self, volume_id: str) -> None:
        if self.sealed or os.path.isdir(self.before):
            try:
                sealed_keys.forget(self.backend, volume_id)
            except OSError as exc:
                raise exceptions.CommandFailed(
                    command='remove the kept key of volume %s'
                    % volume_id, code=exc.errno, stderr=exc) from exc

    def sealed_volumes(self) -> set[str]:
        directory = self.sealed or self.before
        try:
            return (set(sealed_keys.volumes(self.backend))
                    if os.path.isdir(directory) else set())
        except OSError as exc:
            raise exceptions.CommandFailed(
                command='list the keys in %s' % directory, code=exc.errno,
                stderr=exc) from exc

    def close(self, volume_id: str) -> bool:
        return cryptsetup.close(names.crypt(volume_id), self.timeout)

    def resize(self, volume_id: str, key: bytes) -> None:
        cryptsetup_keys.resize(names.crypt(volume_id), key, self.timeout)

    def zero(self, lv: str, volume_id: str, slow: bool = False) -> None:
        size = self.size(volume_id)
        part = ZEROED_AT_ONCE // 4 if slow else ZEROED_AT_ONCE
        for start in range(0, size, part):
            lvm.zero_decrypted(
                self.group, lv, names.crypt(volume_id), start,
                min(part, size - start), self.timeout)
            if start % (4 * ZEROED_AT_ONCE) == 0:
                LOG.info('Volume %(volume)s is being zeroed: %(done)d of '
                         '%(all)d MiB.', {'volume': volume_id,
                                          'done': start // units.Mi,
                                          'all': size // units.Mi})

    # -- notes in LVM tags

    def note(self, lv: str, outdated: Iterable[str] = (), **facts: str
             ) -> None:
        lvm.retag(self.group, lv, names.tags(**facts), list(outdated),
                  self.timeout)

    def remotes(self, lvs: Mapping[str, lvm_reports.LogicalVolume]
                | None = None
                ) -> dict[str, tuple[str, str]]:
        changes = {lv.group_changes for lv in (lvs or {}).values()
                   if lv.group == self.group}
        known = self._tags  # another thread may replace it
        if known[0] not in changes:
            known = self._tags = lvm.group_tags(self.group, self.timeout)
        return header_notes.parse_remote_tags(known[1])

    def note_remote(self, volume_id: str, luks: str, key: str) -> None:
        self._note_remote(
            volume_id, {header_notes.remote_tag(volume_id, luks, key)})

    def forget_remote(self, volume_id: str) -> None:
        self._note_remote(volume_id, set())

    def _note_remote(self, volume_id: str, wanted: set[str]) -> None:
        tags = {tag for tag in lvm.group_tags(self.group, self.timeout)[1]
                if volume_id in header_notes.parse_remote_tags([tag])}
        if tags != wanted:
            lvm.retag_group(self.group, sorted(wanted - tags),
                            sorted(tags - wanted), self.timeout)

    def note_directories(self) -> list[str]:
        noted, former = self._directories()
        wanted = header_notes.directory_tags(
            self.backend, {*former, self.backups, self.sealed})
        has = header_notes.directory_tags(self.backend, noted)
        if has != wanted:
            lvm.retag_group(self.group, sorted(wanted - has),
                            sorted(has - wanted), self.timeout)
        return former

    def former_directories(self) -> list[str]:
        return self._directories()[1]

    def _directories(self) -> tuple[set[str], list[str]]:
        noted = header_notes.parse_directory_tags(
            self.backend, lvm.group_tags(self.group, self.timeout)[1])
        return noted, sorted(
            path for path in noted - {self.backups, self.sealed}
            if os.path.isdir(path))

    def mark(self, lv: str, tag: str) -> None:
        lvm.add_tag(self.group, lv, tag, self.timeout)

    def unmark(self, lv: str, tag: str) -> None:
        lvm.remove_tag(self.group, lv, tag, self.timeout)


class Runner(crypt.Runner):
    """Re-encryption of volumes, in processes which outlive this service.

    See :class:`.crypt.Runner`.

    :param backend: section of the backend
    :param timeout: limit of each command, seconds
    """

    def __init__(self, backend: str, timeout: float):
        self.backend = backend
        self.timeout = timeout
        self._ends = False

    def obstacle(self) -> str:
        return reencrypt_process.obstacle()

    def start(self, volume_id: str) -> None:
        if self._ends:
            return
        reencrypt_process.start(volume_id, self.backend, self.timeout)

    def stop(self, volume_id: str) -> bool:
        return reencrypt_process.stop(volume_id, crypt.STOPPING)

    def end(self) -> None:
        self._ends = True
        for volume_id in reencrypt_process.stop_sessions(crypt.STOPPING):
            LOG.error('The re-encryption of volume %(volume)s has not paused '
                      'within %(seconds)d s. If it is killed now, I/O of the '
                      'volume stays suspended.', {
                          'volume': volume_id, 'seconds': crypt.STOPPING})

    def is_running(self, volume_id: str) -> bool:
        return reencrypt_process.is_running(volume_id)

    def progress(self, volume_id: str) -> cryptsetup_cli.Progress | None:
        return cryptsetup_cli.last_progress(
            reencrypt_process.progress_output(volume_id))
