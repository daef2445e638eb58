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


class OddDisks(exceptions.LocalCloneError):
    """The logical block size of a node's disks can't be told."""

    message = _('The sector size of the disks of volume group %(group)s on '
                '%(host)s can\'t be read. Nothing was changed. See "vgs -o '
                'pv_name %(group)s" there.')
    user_message = 'NOT_READY'


class DiskMissing(exceptions.LocalCloneError):
    """LVM changes nothing in a group that lacks a disk."""

    message = _('Volume group %(group)s on %(host)s lacks %(count)s of its '
                'disks: LVM creates and changes nothing in it. Bring the disk '
                'back (vgck %(group)s shows which), or give it up with '
                'vgreduce --removemissing %(group)s.')
    user_message = 'NOT_READY'


class NoArchive(exceptions.LocalCloneError):
    """LVM changes nothing while it can't archive a group's metadata."""

    message = _('LVM on %(host)s can\'t write its archive: %(directory)s has '
                '%(room)s KiB of free space. LVM creates and changes nothing '
                'until more space is free there. Remove old files from that '
                'directory.')
    user_message = 'NOT_READY'


class AlreadyThere(exceptions.LocalCloneError,
                   exception.MetadataUpdateFailure):
    """An LV where a new one is to be, which somebody may have been given.

    Cinder is to try no other node: it would take its home off a volume.
    """

    message = _('Volume %(volume)s was not created: LV %(lv)s already exists '
                'on %(host)s and may contain data of another user. Nothing '
                'was changed. Create another volume.')
    user_message = 'CREATE_FAILED'
