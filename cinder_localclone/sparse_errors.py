# SPDX-License-Identifier: Apache-2.0
"""The errors of moves that leave out holes; see :mod:`.exceptions`."""

from cinder.i18n import _

from cinder_localclone import exceptions
from cinder_localclone import names


def end(group: str, lv: str) -> str:
    """How an operator lets a copy end that may lack something.

    :param lv: of the copy
    """
    return 'lvchange --addtag %s %s' % (
        names.ACCEPTED, names.lv_path(group, lv))


class SourceWritten(exceptions.LocalCloneError):
    """What was a hole of the source may be none any more."""

    message = _('Volume %(volume)s was written on %(host)s after its handle '
                'was closed, while its move began. Nothing was changed. Close '
                'the volume on that host, and try again.')
    user_message = 'SOURCE_BUSY'


class PoolFails(exceptions.LocalCloneError):
    """A thin pool that can't note what it maps."""

    message = _('Thin pool %(pool)s of %(host)s is in mode "%(mode)s": it '
                'can\'t write its metadata, and what was written to it last '
                'may be lost. Stop the guests there, reboot the node, and '
                'extend the pool\'s metadata LV if it is full.')


class PoolOutOfSpace(exceptions.LocalCloneError):
    """A thin pool without room for what is to be written there."""

    message = _('Thin pool %(pool)s of %(host)s is full: extend it, or delete '
                'what is not needed.')


class SourceUnread(exceptions.LocalCloneError):
    """Something can't be read at the source."""

    message = _('%(disk)s can\'t be read at byte %(first)d: %(reason)s')


class TakesLong(exceptions.LocalCloneError):
    """Something goes on, but not at once."""

    message = _('the operation takes longer than %(seconds)d s')


class Lacking(exceptions.LocalCloneError):
    """A copy that may lack something."""

    message = _('The copy of volume %(volume)s on %(host)s may lack data that '
                'its source on %(source)s has: a thin pool lost data, and it '
                'is unknown whether all of it was copied again. The source is '
                'kept. Check the file system, and restore damaged files. Then '
                'end the copy as it is: %(end)s')


class NotAllCopied(exceptions.LocalCloneError):
    """The source has what its copy has not, although that was copied."""

    message = _('%(size)d KiB of volume %(volume)s that its source has are '
                'still missing on %(host)s, although they were copied again. '
                'The source is kept. See dmesg for errors of the thin pool. '
                'To end the copy as it is: %(end)s')


class NotRefilled(exceptions.LocalCloneError):
    """What was lost of a copy can't be copied again now."""

    message = _('The thin pool of %(host)s has lost data of volume '
                '%(volume)s, and not all of it could be copied again from '
                '%(source)s: %(reason)s. The source is kept, and the driver '
                'tries again. If every try fails, check the file system, '
                'restore damaged files, and end the copy as it is: %(end)s')


class Forgotten(exceptions.LocalCloneError):
    """A source that can't be asked any more."""

    message = _('the source node %(host)s was forgotten')
