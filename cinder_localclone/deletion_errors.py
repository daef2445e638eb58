# SPDX-License-Identifier: Apache-2.0
"""The errors of :mod:`.deletion`; see :mod:`.exceptions`."""

from cinder import exception
from cinder.i18n import _

from cinder_localclone import exceptions


class CannotDelete(exceptions.LocalCloneError, exception.VolumeIsBusy):
    """A volume that can't be deleted now, and has all that it had.

    Its base makes Cinder's manager take the volume for available again.
    """

    message = _('Volume %(volume)s can\'t be deleted now: %(reason)s None of '
                'its data was removed. Delete the volume, or its group, '
                'again.')
    user_message = 'NOT_DELETED'


class HalfDeleted(exceptions.LocalCloneError):
    """The same of one that has not, or of which that is not sure."""

    message = _('Volume %(volume)s was not deleted completely: %(reason)s The '
                'volume can\'t be used any more. Delete it again as an '
                'administrator (openstack volume delete --force); if the '
                'volume is in a group, the group can be deleted again.')
    user_message = 'HALF_DELETED'


def cause(error: Exception) -> Exception:
    """What the owner of a volume that was not deleted is told.

    What has become of it, whatever the reason was: other errors would say
    that it is as it was, or to try again, which he can't.
    """
    if isinstance(error, (CannotDelete, HalfDeleted)):
        return error
    if isinstance(error, exception.VolumeIsBusy):  # a node of before says so
        return CannotDelete(str(error))
    return exceptions.LocalCloneError(str(error))
