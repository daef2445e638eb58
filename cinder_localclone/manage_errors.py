# SPDX-License-Identifier: Apache-2.0
"""The errors of :mod:`.managing`; see :mod:`.exceptions`."""

from cinder import exception
from cinder.i18n import _

from cinder_localclone import exceptions


class CannotManage(exceptions.LocalCloneError,
                   exception.ManageExistingInvalidReference):
    """An LV that somebody has named, and that is not to be managed."""

    message = _('Logical volume %(lv)s on %(host)s can\'t be managed: '
                '%(reason)s. Nothing was changed.')
    user_message = 'NOT_MANAGED'


class CannotUnmanage(exceptions.LocalCloneError, exception.VolumeIsBusy):
    """A volume that has to stay managed for now.

    Its base makes Cinder's manager take the volume for available again.
    """

    message = _('Volume %(volume)s can\'t be unmanaged: %(reason)s. Nothing '
                'was changed.')
    user_message = 'NOT_UNMANAGED'


class SnapshotInUse(exceptions.LocalCloneError, exception.SnapshotIsBusy):
    """The same, of a snapshot."""

    message = _('Snapshot %(snapshot)s can\'t be unmanaged: a host is reading '
                'it. Nothing was changed; try again when the read has ended.')
