# SPDX-License-Identifier: Apache-2.0
"""The errors of what LVM has on a node; see :mod:`.exceptions`."""

from cinder import exception
from cinder.i18n import _

from cinder_localclone import exceptions


class TooFewDisks(exceptions.LocalCloneError):
    """A volume can't have each of its stripes on another disk."""

    message = _('Volume group %(group)s on %(host)s is on %(disks)s disks, '
                'and localclone_thick_stripes is %(stripes)s. Nothing was '
                'created. Add disks to it (vgextend), or correct that '
                'option.')
    user_message = 'NOT_READY'


class AlreadyThere(exceptions.LocalCloneError,
                   exception.MetadataUpdateFailure):
    """An LV where a new one is to be, which somebody may have been given.

    Cinder is to try no other node: it would take its home off a volume.
    """

    message = _('Volume %(volume)s was not created: LV %(lv)s is on %(host)s '
                'already, and may have somebody\'s data. Nothing was changed. '
                'Create another volume.')
    user_message = 'CREATE_FAILED'
