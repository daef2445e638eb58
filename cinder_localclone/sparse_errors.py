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


class NotAllCopied(exceptions.LocalCloneError):
    """The source has what its copy has not, although that was copied."""

    message = _('%(regions)d regions of volume %(volume)s that its source '
                'has are missing on %(host)s, again, after they were copied. '
                'The source is kept. See dmesg for what is wrong with the '
                'thin pool.')
