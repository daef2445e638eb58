# SPDX-License-Identifier: Apache-2.0
"""The errors of :mod:`.deletion`; see :mod:`.exceptions`."""

from cinder import exception
from cinder.i18n import _

from cinder_localclone import exceptions


class CannotDelete(exceptions.LocalCloneError, exception.VolumeIsBusy):
    """A volume that can't be deleted now, and has all that it had.

    Its base makes Cinder's manager take the volume for available again.
    """

    message = _('Volume %(volume)s can\'t be deleted now: %(reason)s Nothing '
                'of it was removed; delete it again.')
    user_message = 'NOT_DELETED'


class HalfDeleted(exceptions.LocalCloneError):
    """A delete that has begun, and can't be brought to its end now."""

    message = _('Volume %(volume)s can\'t be deleted to its end now: '
                '%(reason)s A part of it, or of its encryption header, is '
                'gone already, so it can\'t be used any more. Delete it again '
                'as an administrator (openstack volume delete --force).')
    user_message = 'HALF_DELETED'
