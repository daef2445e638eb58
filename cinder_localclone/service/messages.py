# SPDX-License-Identifier: Apache-2.0
"""Texts for volume owners in ``openstack volume message list``.

Cinder stores only the ID of a message. cinder-api translates it by a fixed
table. So the texts are static and name no host and no device. Each error class
registers its own text. cinder-api loads the texts through its own option::

    [DEFAULT]
    osapi_volume_extension = cinder.api.contrib.standard_extensions
    osapi_volume_extension = cinder_localclone.service.messages.load

Without this line the owner reads "An unknown error occurred.".
"""

import typing

from cinder.i18n import _
from cinder.message import api
from cinder.message import message_field
from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions  # noqa: F401
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import outcomes

LOG = logging.getLogger(__name__)

#: The text of an error without a more precise text.
FAILED = exceptions.LocalCloneError.user_message
#: Actions that Cinder does not define: (ID, text).
MOVE = ('LC1', _('move volume'))
REVERT = ('LC2', _('revert volume to snapshot'))
DELETE = ('LC3', _('delete volume'))


def register() -> None:
    """Add the texts to Cinder's table, in this process. Idempotent."""
    known = {detail[0] for detail in message_field.Detail.ALL}
    message_field.Detail.ALL += tuple(
        each.detail for each in outcomes.USER_MESSAGES.values()
        if each.id not in known)
    message_field.Action.ALL += tuple(
        action for action in (MOVE, REVERT, DELETE)
        if action not in message_field.Action.ALL)


def load(_extension_manager: object) -> None:
    """Load the texts; for cinder-api's option ``osapi_volume_extension``."""
    register()


def tell_owner(context: typing.Any, volume_id: str, error: Exception,
               action: tuple[str, str] = message_field.Action.ATTACH_VOLUME,
               otherwise: outcomes.UserMessage = FAILED,
               resource: str = message_field.Resource.VOLUME) -> None:
    """Record for the volume's owner why a request failed.

    Raise no error, because it would hide the recorded error.

    :param context: the request context of the owner
    :param action: the failed action
    :param otherwise: the text for an error without a more precise text
    :param resource: the type of the resource, if it is not a volume;
        ``volume_id`` is its ID
    """
    told = getattr(error, 'user_message', FAILED)
    if told is FAILED:
        told = otherwise
    events.refused(told.key)
    events.say(events.NOT_DONE, what=resource.lower(), uuid=volume_id,
               cause=told.key.lower(), error=error)
    try:
        api.API().create(context, action, resource_type=resource,
                         resource_uuid=volume_id,
                         detail=told.detail)
    except Exception as exc:  # such as a context without a project
        LOG.warning('No message could be recorded for the owner of '
                    '%(resource)s about this error: %(error)s (because '
                    '%(cause)s)', {
                        'resource': volume_id, 'error': error, 'cause': exc})


register()
