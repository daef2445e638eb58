# SPDX-License-Identifier: Apache-2.0
"""The errors of moves that leave out holes; see :mod:`.exceptions`."""

from cinder.i18n import _

from cinder_localclone import exceptions


class SourceWritten(exceptions.LocalCloneError):
    """What was a hole of the source may be none any more."""

    message = _('Volume %(volume)s was written on %(host)s after it was '
                'closed there, while it was about to move. Close it there '
                'first. Nothing was changed.')
    user_message = 'SOURCE_BUSY'


class PoolFails(exceptions.LocalCloneError):
    """A thin pool that can't note what it maps, or is full."""

    message = _('Thin pool %(pool)s is in mode "%(mode)s": it is full, or '
                'can\'t write its metadata, and what was written last may be '
                'lost. Nothing of a source is removed meanwhile. Extend it; '
                'if its mode is "ro" or "Fail", stop the guests and reboot '
                'the node.')


class NotAllCopied(exceptions.LocalCloneError):
    """The source has what its copy has not, although that was copied."""

    message = _('%(size)d KiB of volume %(volume)s that its source has are '
                'missing on %(host)s, again, after they were copied. '
                'The source is kept. See dmesg for what is wrong with the '
                'thin pool.')
