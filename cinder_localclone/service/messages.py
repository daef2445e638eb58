# SPDX-License-Identifier: Apache-2.0
"""What the owner of a volume reads in ``openstack volume message list``.

Cinder stores only the id of a message and translates it in cinder-api, out
of a fixed table. So these texts are static, name no host and no device, and
cinder-api has to know them too: it loads them through its own option::

    [DEFAULT]
    osapi_volume_extension = cinder.api.contrib.standard_extensions
    osapi_volume_extension = cinder_localclone.service.messages.load

Without that line the owner reads "An unknown error occurred.".
"""

from cinder.i18n import _
from cinder.message import api
from cinder.message import message_field
from oslo_log import log as logging

from cinder_localclone.core import events

LOG = logging.getLogger(__name__)

#: Key -> (detail id, text). Ids are stored in Cinder's database: never give
#: one another meaning. The column holds ten characters.
DETAILS = {
    'FAILED': ('LC00', _(
        'The volume could not be connected; it is unchanged where it was.')),
    'REFUSED': ('LC01', _(
        'The volume cannot be connected to this host in its present state.')),
    'PEER_UNREACHABLE': ('LC02', _(
        'The volume service of the destination host does not answer; the '
        'volume stays where it was.')),
    'NO_FREE_SPACE': ('LC03', _(
        'The host that was to take the volume has not enough free storage. No '
        'data was changed.')),
    'NOT_READY': ('LC04', _(
        'The host that was to take the volume is not able to do so at '
        'present. No data was changed.')),
    'SOURCE_BUSY': ('LC05', _(
        'The volume is still in use on the host it was attached to.')),
    'WRONG_SOURCE': ('LC06', _(
        'The disk that was offered to the host is not that of this volume. '
        'The host did not use it, and the volume is unchanged.')),
    'MOVE_BUSY': ('LC07', _(
        'The volume is being moved, or is used by another request; try again '
        'later.')),
    'DATA_MISSING': ('LC08', _(
        'The data of the volume was not found on its host.')),
    'TIMEOUT': ('LC09', _(
        'The storage of a host did not answer in time. Try again later.')),
    'ATTACHED_ELSEWHERE': ('LC10', _(
        'The volume is attached to another instance.')),
    'HOME_UNREACHABLE': ('LC11', _(
        'The volume service of a host that has the volume does not answer; '
        'try again when that host is back.')),
    'SOURCE_UNREACHABLE': ('LC12', _(
        'The host could not reach the data of the volume on the host that '
        'it comes from; try again later.')),
    'METADATA_TOO_SMALL': ('LC13', _(
        'The volume is being copied between hosts, and the storage that '
        'records the progress is too small. Nothing is lost; an '
        'administrator has to extend it.')),
    'METADATA_LOST': ('LC14', _(
        'The record of which parts of the volume have been copied is lost; '
        'an administrator has to recover the data.')),
    'CLONE_FAILED': ('LC15', _(
        'The storage of the host failed while the volume was being copied to '
        'it; an administrator has to repair it.')),
    'DESTINATION_WRITTEN': ('LC16', _(
        'The volume cannot go back to the host that it comes from: it was '
        'already written on the new one.')),
    'ENCRYPTED': ('LC17', _(
        'This storage cannot encrypt volumes as this volume type asks for; '
        'an administrator has to choose the provider luks with front-end '
        'control, or the storage\'s own encryption.')),
    'NO_SPACE_TO_EXTEND': ('LC18', _(
        'The host that the volume is on has not enough free storage to '
        'extend it; the volume is unchanged.')),
    'NOT_EXTENDED': ('LC19', _(
        'The volume could not be extended; its data is unchanged.')),
    'CREATE_FAILED': ('LC20', _(
        'Nothing was created. The source is unchanged.')),
    'BEING_COPIED': ('LC21', _(
        'The volume is still being copied to the host that it was moved to; '
        'try again when that has ended.')),
    'NEEDS_THIN': ('LC22', _(
        'This storage does not offer snapshots and clones of volumes.')),
    'POOL_FULL': ('LC23', _(
        'The storage of the host that the volume is on is too full for '
        'snapshots and clones.')),
    'FOREIGN_IMAGE': ('LC24', _(
        'This storage cannot make the volume of that snapshot or volume: the '
        'source is on other storage, or its size or encryption does not '
        'match.')),
    'SNAPSHOT_UNREACHABLE': ('LC25', _(
        'The volume service of the host that the snapshot is on does not '
        'answer; try again when that host is back.')),
    'NOT_MOVED': ('LC26', _(
        'The volume could not be moved; it is unchanged where it was.')),
    'NOT_MOVABLE': ('LC27', _(
        'The volume cannot be moved to that host in its present state.')),
    'FOLLOWS_INSTANCE': ('LC28', _(
        'The volume is attached: it moves with its instance. Migrate the '
        'instance, or detach the volume first.')),
    'NOT_REVERTED': ('LC29', _(
        'The volume was not reverted to the snapshot; its data is '
        'unchanged.')),
    'NOT_MANAGED': ('LC30', _(
        'The named logical volume could not be managed by this storage; it is '
        'unchanged.')),
    'NOT_UNMANAGED': ('LC31', _(
        'The volume is still managed: it is in use, being moved, encrypted or '
        'incomplete, or its storage failed.')),
    'ENCRYPTION_TYPE': ('LC32', _(
        'The volume type asks for an encryption that this storage does not '
        'have; an administrator has to correct the type.')),
    'KEY_UNREADABLE': ('LC33', _(
        'The key of the volume could not be read with the rights of this '
        'request.')),
    'ENCRYPTION_CHANGE': ('LC34', _(
        'The encryption of a volume cannot be changed in place; copy it to a '
        'new volume.')),
    'ENCRYPTED_REMOTE': ('LC35', _(
        'An encrypted volume can only be used on hosts that have this '
        'storage.')),
    'KEY_UNAVAILABLE': ('LC36', _(
        'The key manager does not answer; the volume is unchanged. Try again '
        'later.')),
    'HEADER_DAMAGED': ('LC37', _(
        'The encryption header of the volume cannot be used; nothing was '
        'written to it. An administrator has to examine it.')),
    'MOVES_COLD': ('LC38', _(
        'A volume of this type moves only while it is detached.')),
    'NOT_AT_REST': ('LC39', _(
        'The volume is being moved, or another host uses it over the network; '
        'try again afterwards.')),
    'FRESH_ENCRYPTED': ('LC40', _(
        'A backup cannot be restored to a volume of this type that was never '
        'attached; attach it once, or choose another type.')),
    'REENCRYPTING': ('LC41', _(
        'The volume is being re-encrypted; try again when that has ended.')),
    'KEEPS_SIZE': ('LC42', _(
        'A volume of this type cannot be extended; copy the data to a larger '
        'volume.')),
    'PACE_TYPE': ('LC43', _(
        'The volume type asks for a pace of copies that this storage does '
        'not have; an administrator has to correct the type.')),
    'NOT_DELETED': ('LC44', _(
        'The volume is in use or is being moved, or its storage did not '
        'answer in time. None of its data was removed: delete the volume, or '
        'its group, again.')),
    'HALF_DELETED': ('LC45', _(
        'The volume could not be deleted completely and can\'t be used any '
        'more. Ask an administrator to delete it again; if the volume is in a '
        'group, you can delete the group again.')),
    'DELETE_FAILED': ('LC46', _(
        'The volume could not be deleted; an administrator has to examine '
        'it.')),
    'EXTEND_AGAIN': ('LC47', _(
        'An earlier extension of the volume has failed. Ask an administrator '
        'to reset the status of the volume, extend it again, and repeat the '
        'request.')),
}
#: What was asked for, where Cinder has no word for it: (id, text).
MOVE = ('LC1', _('move volume'))
REVERT = ('LC2', _('revert volume to snapshot'))
DELETE = ('LC3', _('delete volume'))


def register() -> None:
    """Add the texts to Cinder's table, in this process. Idempotent."""
    known = {detail[0] for detail in message_field.Detail.ALL}
    message_field.Detail.ALL += tuple(
        detail for detail in DETAILS.values() if detail[0] not in known)
    message_field.Action.ALL += tuple(
        action for action in (MOVE, REVERT, DELETE)
        if action not in message_field.Action.ALL)


def load(_extension_manager) -> None:
    """Entry for cinder-api's option ``osapi_volume_extension``."""
    register()


def tell_owner(context, volume_id: str, error: Exception,
               action: tuple[str, str] = message_field.Action.ATTACH_VOLUME,
               otherwise: str = 'FAILED',
               resource: str = message_field.Resource.VOLUME) -> None:
    """Record for the volume's owner why something was not done.

    Never an error: it would hide the one that the owner is to be told of.

    :param context: the request context of the owner
    :param action: what was not done
    :param otherwise: which of :data:`DETAILS` says so, if the error has none
        that is more precise
    :param resource: what it was to be done to, if not to a volume; the id is
        that one's
    """
    key = getattr(error, 'user_message', 'FAILED')
    if key == 'FAILED':
        key = otherwise
    events.refused(key)
    events.say(events.NOT_DONE, what=resource.lower(), id=volume_id,
               cause=key.lower(), error=error)
    try:
        api.API().create(context, action, resource_type=resource,
                         resource_uuid=volume_id, detail=DETAILS[key])
    except Exception as exc:  # a context without a project, for one
        LOG.warning('No message could be recorded for the owner of '
                    '%(resource)s about this error: %(error)s (because '
                    '%(cause)s)', {
                        'resource': volume_id, 'error': error, 'cause': exc})


register()
