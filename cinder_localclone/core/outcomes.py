# SPDX-License-Identifier: Apache-2.0
"""The further texts of an error for the operator.

An error class states them itself, see :class:`.exceptions.LocalCloneError`.
"""

import enum

from cinder.i18n import _


class Outcome(str, enum.Enum):
    """The state after a failed request, for the operator."""

    #: The class does not know; its text or its reason may say it.
    UNKNOWN = ''
    UNCHANGED = _('Nothing was changed.')
    #: Of a request to create something.
    NOT_CREATED = _('Nothing was created.')
    #: Of a device with a header.
    NOT_WRITTEN = _('Nothing was written to it.')
    #: Of a request to the privileged process.
    NOT_DONE = _('Nothing was done.')
    #: A part of the request may have been done; a repetition is harmless.
    NOT_COMPLETED = _('This request was not completed.')
    #: The volume has no handle on this node, on purpose.
    NOT_AVAILABLE = _('The volume was not made available.')
    #: A delete that has not begun to remove anything.
    NOT_REMOVED = _('None of its data was removed.')
    #: A delete that has begun to remove data.
    HALF_REMOVED = _('Its data may be incomplete.')
    NOT_USED = _('The driver did not use the disk.')
    #: An incomplete copy continues, and keeps its source.
    SOURCE_KEPT = _('The source is kept.')


def in_words(problem: str, outcome: Outcome, remedy: str) -> str:
    """Return the text of an error.

    :param remedy: the operator's action. With a small first letter it
        continues the sentence before it
    """
    if outcome and remedy[:1].islower():
        return '%s %s; %s' % (problem, outcome.value[:-1], remedy)
    return ' '.join(filter(None, (problem, outcome.value, remedy)))
