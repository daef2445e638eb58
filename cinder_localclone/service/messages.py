# SPDX-License-Identifier: Apache-2.0
"""What the owner of a volume reads in ``openstack volume message list``.

Cinder stores only the id of a message and translates it in cinder-api, out
of a fixed table. So the texts, which each error class registers with itself,
are static, name no host and no device, and cinder-api has to know them too:
it loads them through its own option::

    [DEFAULT]
    osapi_volume_extension = cinder.api.contrib.standard_extensions
    osapi_volume_extension = cinder_localclone.service.messages.load

Without that line the owner reads "An unknown error occurred.".
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

#: What an error says that has no more precise text.
FAILED = exceptions.LocalCloneError.user_message
#: What was asked for, where Cinder has no word for it: (id, text).
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
    """Entry for cinder-api's option ``osapi_volume_extension``."""
    register()


def tell_owner(context: typing.Any, volume_id: str, error: Exception,
               action: tuple[str, str] = message_field.Action.ATTACH_VOLUME,
               otherwise: outcomes.UserMessage = FAILED,
               resource: str = message_field.Resource.VOLUME) -> None:
    """Record for the volume's owner why something was not done.

    Never an error: it would hide the one that the owner is to be told of.

    :param context: the request context of the owner
    :param action: what was not done
    :param otherwise: what the owner reads if the error says nothing more
        precise
    :param resource: what it was to be done to, if not to a volume; the id is
        that one's
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
    except Exception as exc:  # a context without a project, for one
        LOG.warning('No message could be recorded for the owner of '
                    '%(resource)s about this error: %(error)s (because '
                    '%(cause)s)', {
                        'resource': volume_id, 'error': error, 'cause': exc})


register()
