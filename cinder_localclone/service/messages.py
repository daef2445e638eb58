# SPDX-License-Identifier: Apache-2.0
"""Send the messages of ``openstack volume message list``.

Cinder stores only the ID of a message. cinder-api translates it by a fixed
table, which :mod:`.core.user_messages` extends. cinder-api loads the texts
through its own option::

    [DEFAULT]
    osapi_volume_extension = cinder.api.contrib.standard_extensions
    osapi_volume_extension = cinder_localclone.service.messages.load

Without this line the member reads "An unknown error occurred.".
"""

from collections.abc import Iterator
import contextlib
import typing

from cinder.message import api
from cinder.message import message_field
from oslo_log import log as logging

from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core import user_messages
from cinder_localclone.core.user_messages import Action

LOG = logging.getLogger(__name__)


def register() -> None:
    """Add the texts to Cinder's table, in this process. Idempotent."""
    for table, added in (
            (message_field.Detail, user_messages.details()),
            (message_field.Action, [each.value.cinder for each in Action])):
        known = {number for number, _text in table.ALL}
        table.ALL += tuple(
            each for each in added if each[0] not in known)


def load(_extension_manager: object) -> None:
    """Load the texts; for cinder-api's option ``osapi_volume_extension``."""
    register()


def message_about(error: BaseException, action: Action
                  ) -> user_messages.UserMessage:
    """Return the message about an error in a request."""
    while isinstance(error, exceptions.NotCreated) and error.__cause__:
        error = error.__cause__
    return user_messages.choose(
        getattr(error, 'member_reads', ()), action)


def tell_member(context: typing.Any, resource_id: str, error: Exception,
                action: Action) -> None:
    """Record for the members of a project why a request failed.

    Raise no error, because it would hide the recorded error.

    :param context: the request context of the member
    :param resource_id: the ID of the volume, snapshot or backup
    """
    told, facts = message_about(error, action), action.value
    events.refused(told.key)
    events.say(events.NOT_DONE, what=facts.resource.lower(), uuid=resource_id,
               cause=told.key.lower(), error=error)
    try:
        api.API().create(
            context, facts.cinder, resource_type=facts.resource,
            resource_uuid=resource_id, detail=told.detail(action))
    except Exception as exc:  # such as a context without a project
        LOG.warning('No message could be recorded for the owner of '
                    '%(resource)s about this error: %(error)s (because '
                    '%(cause)s)', {
                        'resource': resource_id, 'error': error,
                        'cause': exc})


@contextlib.contextmanager
def telling_of(action: Action, volume: typing.Any, context: typing.Any = None
               ) -> Iterator[None]:
    """Tell a volume's owner of an error in a request, and raise it.

    :param volume: Cinder's object
    :param context: the request context; None: as in the object
    """
    try:
        yield
    except Exception as exc:
        tell_member(volume._context if context is None else context,
                    volume.id, exc, action)
        raise


register()
