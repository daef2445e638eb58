# SPDX-License-Identifier: Apache-2.0
"""Backups of headers: files on this node.

A base of :class:`.cryptsetup.Cryptsetup`; :mod:`.header_backups` says when
there is to be one.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os

from oslo_log import log as logging

from cinder_localclone import encryption_errors
from cinder_localclone import encryption_types
from cinder_localclone import exceptions
from cinder_localclone.luks import headers
from cinder_localclone import names
from cinder_localclone.privileged import backups
from cinder_localclone.privileged import secrets

LOG = logging.getLogger(__name__)


class HeaderFiles:
    """Files with headers of volumes.

    :param timeout: limit of each command, seconds
    :param backups: directory of them; '' for none
    :param backend: section of the backend, by which the privileged daemon
        finds the same directory in its own configuration
    """

    def __init__(self, timeout: float, backups: str = '', backend: str = ''):
        self.timeout = timeout
        self.backups = backups
        self.backend = backend

    def back_up(self, volume_id: str, what: str = '1') -> None:
        """Copy a volume's header to where backups of headers are.

        A volume without one works as well: what fails is only logged.

        :param what: by which it is told from others of the same volume
        """
        if not self.backups:
            return
        try:
            backups.make(names.handle_path(volume_id), self.backend,
                         names.header_backup(volume_id, what), self.timeout)
        except (exceptions.LocalCloneError, OSError) as exc:
            LOG.error('There is no backup of the header of volume %(volume)s '
                      'in %(directory)s: %(error)s', {
                          'volume': volume_id, 'directory': self.backups,
                          'error': exc})

    def renew_backup(self, volume_id: str, header: headers.Header,
                     key: bytes) -> None:
        """Copy a volume's header; remove the older copies once it is proven.

        The older ones would be opened by keys that open the volume no more,
        or show what it was before it was re-encrypted as noise. But somebody
        who can write to the disk may change the header at any moment, and
        its key slots without a trace: the new copy itself is looked at.

        :param header: what the volume's header must say
        :param key: what opens it; b'' if older copies are of no use in any
            case
        :raises ForeignHeader: if it says something else
        :raises WrongKey: if the key does not open it
        :raises LocalCloneError: if no copy was made. The older ones stay, as
            after the other errors
        """
        if not self.backups:
            return
        with self._saying_where(volume_id):
            name = backups.add(names.handle_path(volume_id), self.backend,
                               self.timeout)
            try:
                if self.backed_up(volume_id, name) != header:
                    raise encryption_errors.ForeignHeader(
                        path=names.handle_path(volume_id),
                        reason='it was changed after the driver checked it')
                if key:
                    self.test_backup(volume_id, name, key)
            except Exception:
                # What stays is compared by the next check of the node.
                with contextlib.suppress(exceptions.LocalCloneError, OSError):
                    backups.remove(self.backend, volume_id, name)
                raise
            backups.keep_only(self.backend, volume_id, name)

    def backup_names(self, volume_id: str) -> list[str]:
        """The backups of a volume's header, the oldest first."""
        return backups.listed(
            self.backend, volume_id) if self.backups else []

    def backed_up(self, volume_id: str, name: str) -> headers.Header:
        """What a backup of a volume's header says.

        :raises HeaderDamaged: if it can't be read, or not be understood
        """
        try:
            return headers.parse(backups.dump(
                self.backend, volume_id, name, self.timeout))
        except ValueError as exc:
            raise encryption_errors.HeaderDamaged(path=os.path.join(
                self.backups, volume_id, name), reason=exc)

    def test_backup(self, volume_id: str, name: str, key: bytes,
                    slot: str | None = None) -> None:
        """Prove that a key opens what a backup was made of.

        :param slot: which slot it has to open; None: any
        :raises WrongKey: if it does not
        """
        secrets.test_backup(self.backend, volume_id, name, key,
                            self.timeout, slot)

    def save(self, volume_id: str) -> None:
        """Copy what a volume has instead of its header into a file."""
        with self._saying_where(volume_id):
            backups.save_beginning(
                names.handle_path(volume_id), self.backend,
                encryption_types.HEADER_BYTES, self.timeout)

    def restore(self, volume_id: str, name: str, drop: Sequence[str]
                ) -> None:
        """Write a backup over a volume's header.

        :param drop: key slots of the backup that the header is not to have.
            Its LUKS UUID is the volume's id, whatever the backup's is
        """
        backups.restore(names.handle_path(volume_id), self.backend, name,
                        drop, self.timeout)

    @contextlib.contextmanager
    def _saying_where(self, volume_id: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise encryption_errors.NoBackup(
                volume=volume_id, directory=self.backups, reason=exc)

    def keeps_backups(self) -> bool:
        """Whether this node keeps backups of headers at all."""
        return bool(self.backups)

    def place_of_backups(self) -> tuple[int, int] | None:
        """Device and inode of the directory that they are in.

        It is another one when a disk is mounted there, or not any more.
        """
        try:
            found = os.stat(self.backups)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def backed_up_volumes(self) -> list[str]:
        """The ids of the volumes of whose headers this node has backups."""
        return backups.volumes(self.backend) if self.backups else []

    def drop_backups(self, volume_id: str) -> None:
        """Remove all of them."""
        if self.backups:
            backups.drop(self.backend, volume_id)
