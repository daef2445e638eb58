# SPDX-License-Identifier: Apache-2.0
"""The messages to members of projects about failed requests.

A member reads them with ``openstack volume message list``. Each message has a
code, and a text for each request in which its cause is true. The text is the
problem, and the action of the member. An error class names its messages, see
:class:`.exceptions.LocalCloneError`. In a request without a message of the
error, the member reads the default of the request.

Cinder stores only an ID and translates it by a fixed table. So each text is
static, and names no host, no device and no other volume.
"""

from collections.abc import Iterable
import dataclasses
import enum

from cinder.i18n import _
from cinder.message import message_field


@dataclasses.dataclass(frozen=True)
class _Facts:
    """The properties of a request.

    :param letter: completes the code of a message to the ID of its text.
        Never give a letter another meaning
    :param cinder: the ID and text of the request in Cinder's messages
    :param again: how the member repeats the failed request
    :param elsewhere: how the member avoids the host of the failed request
    :param volume: the volume in the errors of the request
    :param resource: the type of the resource of the message
    :param made: the result of a request to create something
    """

    letter: str
    cinder: tuple[str, str]
    again: str
    elsewhere: str = ''
    volume: str = _('the volume')
    resource: str = message_field.Resource.VOLUME
    made: str = _('the volume')


_OF_CINDER = message_field.Action


class Action(enum.Enum):
    """A request about which a member can get a message."""

    ATTACH = _Facts(
        'A', _OF_CINDER.ATTACH_VOLUME, _('Try again'),
        elsewhere=_('Attach the volume to an instance on another host'))
    #: A volume without a source. Cinder may try another host by itself.
    CREATE = _Facts(
        'C', _OF_CINDER.CREATE_VOLUME_FROM_BACKEND,
        _('If the status of the volume is error, delete the volume and create '
          'it again'))
    #: A volume from a snapshot or another volume.
    CLONE = _Facts(
        'N', _OF_CINDER.CREATE_VOLUME_FROM_BACKEND,
        _('Delete the volume and create it again'),
        volume=_('the source of the volume'))
    #: An image written to a volume encrypted by Nova, also for a rebuild.
    IMAGE = _Facts(
        'I', _OF_CINDER.COPY_IMAGE_TO_VOLUME,
        _('Write the image again, or delete the volume and create it again'))
    DELETE = _Facts('D', ('LC3', _('delete volume')),
                    _('Delete the volume again'))
    EXTEND = _Facts(
        'E', _OF_CINDER.EXTEND_VOLUME,
        _('When an administrator has reset the status of the volume, extend '
          'it again'))
    #: A migration, also for a change of the type.
    MOVE = _Facts('M', ('LC1', _('move volume')), _('Repeat the request'),
                  elsewhere=_('Choose another host'))
    RETYPE = _Facts('T', ('LC4', _('change type of volume')),
                    _('Repeat the request'))
    SNAPSHOT = _Facts(
        'S', _OF_CINDER.SNAPSHOT_CREATE,
        _('Delete the snapshot and take it again'),
        resource=message_field.Resource.VOLUME_SNAPSHOT,
        made=_('the snapshot'))
    REVERT = _Facts('R', ('LC2', _('revert volume to snapshot')),
                    _('Try again'))
    BACKUP = _Facts(
        'B', _OF_CINDER.BACKUP_CREATE,
        _('Delete the backup and create it again'),
        resource=message_field.Resource.VOLUME_BACKUP, made=_('the backup'))
    #: Delete is safe: the driver keeps the logical volume.
    MANAGE = _Facts(
        'G', _OF_CINDER.CREATE_VOLUME_FROM_BACKEND,
        _('Delete the volume (the logical volume stays), and manage the '
          'logical volume again'))
    UNMANAGE = _Facts(
        'U', _OF_CINDER.UNMANAGE_VOLUME,
        _('Reset the status of the volume to available, and unmanage the '
          'volume again'))

    @property
    def terms(self) -> dict[str, str]:
        """The words of the request for the text of a message."""
        facts = self.value
        return {'volume': facts.volume, 'made': facts.made,
                'again': facts.again,
                'elsewhere': facts.elsewhere or facts.again}


@dataclasses.dataclass(frozen=True)
class UserMessage:
    """A message for the requests in which its cause is true.

    In ``problem`` and ``member``, ``%(again)s`` and the like are words of the
    request; see :attr:`Action.terms`.

    :param key: its name in metrics and log lines
    :param code: never give a code another meaning
    :param actions: the requests in which its cause is true
    :param problem: the cause; names no host and no device
    :param member: the action of the member who made the request
    :param operator: the action of the operator; not sent to the member
    """

    key: str
    code: str
    actions: frozenset[Action]
    problem: str
    member: str
    operator: str

    def parts(self, action: Action) -> tuple[str, str]:
        """Return the problem, and the action of the member, for a request."""
        problem, member = (each % action.terms
                           for each in (self.problem, self.member))
        return problem[:1].upper() + problem[1:], member

    def text(self, action: Action) -> str:
        """Return the text that a member reads."""
        return ' '.join(self.parts(action))

    def detail(self, action: Action) -> tuple[str, str]:
        """Return the ID and the text, in the form of Cinder's table.

        The column of the ID holds ten characters.
        """
        return self.code + action.value.letter, self.text(action)


#: All messages, by their keys. LC39 was another message.
MESSAGES: dict[str, UserMessage] = {}


def _message(key: str, code: str, actions: Iterable[Action], problem: str,
             member: str, operator: str) -> UserMessage:
    """Register a message.

    :raises ValueError: if the key or the code is taken
    """
    if key in MESSAGES or code in {each.code for each in MESSAGES.values()}:
        raise ValueError('%s or %s is taken' % (key, code))
    MESSAGES[key] = UserMessage(
        key, code, frozenset(actions), problem, member, operator)
    return MESSAGES[key]


def choose(candidates: Iterable[UserMessage], action: Action) -> UserMessage:
    """Return the first message that is true in a request, or its default.

    :param candidates: the messages of an error
    """
    return next((each for each in candidates if action in each.actions),
                DEFAULTS[action])


def details() -> list[tuple[str, str]]:
    """Return the IDs and texts of all messages, for Cinder's table."""
    return [each.detail(action) for each in MESSAGES.values()
            for action in Action if action in each.actions]


def _then_ask(text: str) -> str:
    """Return a text, and that an administrator can help.

    Lazily translated texts can be joined, but not added.
    """
    return ' '.join((text, _ASK))


_A = Action
#: After a failed delete the status decides about a second delete, so a delete
#: has only its own messages.
_ANY = frozenset(_A) - {_A.DELETE}
#: Requests about an existing volume; and about a volume or its snapshot.
_OF_EXISTING = _ANY - {_A.CREATE, _A.CLONE, _A.MANAGE}
_OF_SOURCES = _ANY - {_A.CREATE, _A.MANAGE}
#: Requests that need all data of a volume at its home.
_CAPTURES = frozenset((_A.CLONE, _A.SNAPSHOT, _A.REVERT, _A.BACKUP))
_CREATES = frozenset((_A.CREATE, _A.CLONE))

_IN_LOG = _('Look for the error in the log of the volume service, by the '
            'request ID of the message.')
_ASK = _('If the request fails again, ask an administrator.')
_DOCTOR = _('Run "cinder-localclone doctor" on the host.')
_KEEP = _('Do not delete %(volume)s. Ask an administrator to examine it.')
_RECOVER = _('Do not delete %(volume)s or its snapshots. Ask an administrator '
             'to recover the data.')

# -- any cause, by request

FAILED = _message(
    'FAILED', 'LC00', [_A.ATTACH],
    _('The storage could not connect the volume to the host.'),
    _then_ask(_('%(again)s.')), _IN_LOG)
CREATE_FAILED = _message(
    'CREATE_FAILED', 'LC20', [_A.CREATE, _A.CLONE, _A.SNAPSHOT, _A.BACKUP],
    _('The storage could not create %(made)s. The source, if any, is '
      'unchanged.'),
    _then_ask(_('%(again)s.')), _IN_LOG)
IMAGE_FAILED = _message(
    'IMAGE_FAILED', 'LC49', [_A.IMAGE],
    _('The image was not completely written to the volume.'),
    _then_ask(_('%(again)s.')), _IN_LOG)
DELETE_FAILED = _message(
    'DELETE_FAILED', 'LC46', [_A.DELETE],
    _('The volume could not be deleted.'),
    _('Ask an administrator to delete it again.'),
    _('Repair the cause in the log of the volume service, and delete the '
      'volume with "openstack volume delete --force".'))
NOT_EXTENDED = _message(
    'NOT_EXTENDED', 'LC19', [_A.EXTEND],
    _('The volume could not be extended; its data is unchanged.'),
    _('%(again)s.'),
    _('Repair the cause in the log of the volume service, and reset the '
      'status of the volume.'))
NOT_MOVED = _message(
    'NOT_MOVED', 'LC26', [_A.MOVE],
    _('The volume could not be moved.'), _then_ask(_('%(again)s.')), _IN_LOG)
NOT_RETYPED = _message(
    'NOT_RETYPED', 'LC50', [_A.RETYPE],
    _('The storage could not change the type of the volume in place.'),
    _then_ask(_('If the volume still has its former type, repeat the '
                'request.')),
    _IN_LOG)
NOT_REVERTED = _message(
    'NOT_REVERTED', 'LC29', [_A.REVERT],
    _('The volume was not reverted to the snapshot; its data is unchanged.'),
    _then_ask(_('%(again)s.')), _IN_LOG)
MANAGE_FAILED = _message(
    'MANAGE_FAILED', 'LC51', [_A.MANAGE],
    _('The storage could not manage the logical volume.'),
    _('%(again)s.'), _IN_LOG)
UNMANAGE_FAILED = _message(
    'UNMANAGE_FAILED', 'LC52', [_A.UNMANAGE],
    _('The storage could not unmanage the volume.'),
    _('%(again)s.'), _IN_LOG)

#: The message about an error without a true message, by request.
DEFAULTS = {
    _A.ATTACH: FAILED, _A.CREATE: CREATE_FAILED, _A.CLONE: CREATE_FAILED,
    _A.IMAGE: IMAGE_FAILED, _A.DELETE: DELETE_FAILED,
    _A.EXTEND: NOT_EXTENDED, _A.MOVE: NOT_MOVED, _A.RETYPE: NOT_RETYPED,
    _A.SNAPSHOT: CREATE_FAILED, _A.REVERT: NOT_REVERTED,
    _A.BACKUP: CREATE_FAILED, _A.MANAGE: MANAGE_FAILED,
    _A.UNMANAGE: UNMANAGE_FAILED}

# -- other requests, and moves

REFUSED = _message(
    'REFUSED', 'LC01', [_A.ATTACH],
    _('The volume cannot be connected to this host in its present state.'),
    _then_ask(_('Check the status of the volume, and try again in ten '
                'minutes.')),
    _('The log of the volume service has the state that forbids the '
      'connection.'))
ATTACHED_ELSEWHERE = _message(
    'ATTACHED_ELSEWHERE', 'LC10', [_A.ATTACH],
    _('The volume is attached to another instance.'),
    _('Detach the volume from that instance, and attach it again.'),
    _('If no such instance exists, delete the attachment.'))
MOVE_BUSY = _message(
    'MOVE_BUSY', 'LC07', _OF_SOURCES,
    _('%(volume)s is being moved to another host.'),
    _('%(again)s when the move has ended.'),
    _('Check the move with "cinder-localclone move list".'))
BUSY = _message(
    'BUSY', 'LC53', _ANY,
    _('The storage of a host was busy with another request.'),
    _('%(again)s in a few minutes.'),
    _('If the message is frequent, look in the log for the locked object.'))
CHANGED = _message(
    'CHANGED', 'LC54', _ANY,
    _('A volume or snapshot of this request was moved, changed or deleted at '
      'the same time.'),
    _('%(again)s if you still need it.'),
    _('Nothing. If a single request caused it, run "cinder-localclone '
      'volume show" for the volume.'))
BEING_COPIED = _message(
    'BEING_COPIED', 'LC21', _CAPTURES,
    _('%(volume)s is still being copied to its new host.'),
    _('%(again)s when the copy has ended.'),
    _('Check the copy with "cinder-localclone move list".'))
NOT_MOVABLE = _message(
    'NOT_MOVABLE', 'LC27', [_A.MOVE],
    _('The volume cannot be moved to that host in its present state.'),
    _('Choose another host, or ask an administrator for the reason.'),
    _('The log of the volume service has the reason.'))
FOLLOWS_INSTANCE = _message(
    'FOLLOWS_INSTANCE', 'LC28', [_A.MOVE],
    _('The volume is attached: it moves with its instance.'),
    _('Migrate the instance, or detach the volume first.'),
    _('Migrate the instance.'))
SOURCE_BUSY = _message(
    'SOURCE_BUSY', 'LC05', [_A.ATTACH, _A.MOVE, _A.REVERT, _A.IMAGE],
    _('The volume is still in use on its host.'),
    _then_ask(_('Detach the volume from all instances. %(again)s in a few '
                'minutes.')),
    _('Find the process with the volume open on its home ("cinder-localclone '
      'volume show"), and end it.'))
DESTINATION_WRITTEN = _message(
    'DESTINATION_WRITTEN', 'LC16', _OF_EXISTING,
    _('A live migration of the volume cannot be rolled back: data was already '
      'written on the new host.'),
    _('Ask an administrator to complete the move.'),
    _('Close the volume on the source, and run "cinder-localclone move '
      'complete".'))

# -- hosts that do not answer

PEER_UNREACHABLE = _message(
    'PEER_UNREACHABLE', 'LC02', [_A.ATTACH, _A.MOVE, _A.CLONE],
    _('The volume service of the destination host is down or does not '
      'answer.'),
    _('%(again)s when the host is back.'),
    _('Start the volume service of the host, and check its connection to the '
      'message bus.'))
HOME_UNREACHABLE = _message(
    'HOME_UNREACHABLE', 'LC11', _OF_SOURCES,
    _('The volume service of the host with %(volume)s does not answer.'),
    _('%(again)s when the host is back.'),
    _('Start the volume service of the host, and check its connection to the '
      'message bus.'))
SNAPSHOT_UNREACHABLE = _message(
    'SNAPSHOT_UNREACHABLE', 'LC25', [_A.CLONE, _A.REVERT, _A.BACKUP],
    _('The volume service of the host with the snapshot does not answer.'),
    _('%(again)s when the host is back.'),
    _('Start the volume service of the host, and check its connection to the '
      'message bus.'))
USER_UNREACHABLE = _message(
    'USER_UNREACHABLE', 'LC48', [_A.ATTACH, _A.EXTEND, _A.MOVE],
    _('The volume service of a host using or requesting the volume does not '
      'answer.'),
    _('%(again)s when the host is back.'),
    _('Start the volume service of the host, and check its connection to the '
      'message bus.'))
SOURCE_UNREACHABLE = _message(
    'SOURCE_UNREACHABLE', 'LC12', [_A.ATTACH, _A.MOVE, _A.CLONE],
    _('The destination host could not reach the data of the volume on the '
      'other host.'),
    _then_ask(_('%(again)s later.')),
    _('Check the network between the hosts, and the iSCSI target of the '
      'source.'))
TIMEOUT = _message(
    'TIMEOUT', 'LC09', _ANY,
    _('The storage of a host did not answer in time.'),
    _then_ask(_('%(again)s later.')),
    _('Look for hanging commands and disks in the kernel log of the host.'))
UPGRADE = _message(
    'UPGRADE', 'LC55', _ANY,
    _('The storage is being updated: two hosts run different versions.'),
    _('%(again)s when the update has ended.'),
    _('Update the driver on all nodes, and restart the volume services.'))

# -- space, and faults of storage

NO_FREE_SPACE = _message(
    'NO_FREE_SPACE', 'LC03', [_A.ATTACH, _A.MOVE, _A.CREATE, _A.CLONE],
    _('The host chosen for the volume does not have enough free storage.'),
    _('%(elsewhere)s, or ask an administrator for more storage on the host.'),
    _('Extend the volume group or thin pool, or delete volumes there.'))
NO_SPACE_TO_EXTEND = _message(
    'NO_SPACE_TO_EXTEND', 'LC18', [_A.EXTEND],
    _('The volume\'s host does not have enough free storage for the '
      'extension.'),
    _('Ask an administrator for more storage. %(again)s.'),
    _('Extend the volume group or thin pool, then reset the status of the '
      'volume.'))
EXTEND_AGAIN = _message(
    'EXTEND_AGAIN', 'LC47', [_A.ATTACH, _A.MOVE, *_CAPTURES],
    _('An earlier extension of %(volume)s has failed.'),
    _('When an administrator has reset its status, extend it at least to the '
      'size of that extension. %(again)s afterwards.'),
    _('Reset the status of the volume. The log has both sizes.'))
EXTEND_FURTHER = _message(
    'EXTEND_FURTHER', 'LC64', [_A.EXTEND],
    _('An earlier extension of the volume to a larger size has failed.'),
    _('When an administrator has reset the status of the volume, extend it at '
      'least to that size.'),
    _('Reset the status of the volume. The log has both sizes.'))
POOL_FULL = _message(
    'POOL_FULL', 'LC23', _CAPTURES,
    _('The storage of the host is too full for snapshots and clones.'),
    _('Ask an administrator for more storage. %(again)s afterwards.'),
    _('Extend the thin pool ("lvextend"), or delete volumes there.'))
STORAGE_FULL = _message(
    'STORAGE_FULL', 'LC56', _ANY,
    _('The storage of a host is full.'),
    _('Delete volumes and snapshots that you do not need, or ask an '
      'administrator for more storage. %(again)s afterwards.'),
    _('Extend the thin pool at once: guests can\'t write.'))
NEEDS_THIN = _message(
    'NEEDS_THIN', 'LC22', [_A.CLONE, _A.SNAPSHOT, _A.REVERT],
    _('This storage does not support snapshots and clones of volumes.'),
    _('Use a backup, or a volume of another type.'),
    _('Offer a volume type of a backend with thin volumes.'))
BACKUP_NEEDS_THIN = _message(
    'BACKUP_NEEDS_THIN', 'LC57', [_A.BACKUP],
    _('This storage can back up a volume only while it is detached.'),
    _('Detach the volume. %(again)s.'),
    _('Offer a volume type of a backend with thin volumes.'))
NOT_READY = _message(
    'NOT_READY', 'LC04', [_A.ATTACH, _A.MOVE, _A.CREATE, _A.CLONE],
    _('The host chosen for the volume cannot take it at present.'),
    _('%(elsewhere)s, or ask an administrator to prepare the host.'),
    _DOCTOR)
STORAGE_FAULT = _message(
    'STORAGE_FAULT', 'LC58', _ANY,
    _('The storage of a host has a fault.'),
    _('Ask an administrator to repair it. %(again)s afterwards.'), _DOCTOR)
DATA_MISSING = _message(
    'DATA_MISSING', 'LC08', _OF_SOURCES - {_A.IMAGE},
    _('Data needed for this request was not found on its host.'),
    _RECOVER,
    _('See "Losing a disk" in :doc:`/operate/disks`.'))
CLONE_FAILED = _message(
    'CLONE_FAILED', 'LC15', _OF_EXISTING,
    _('The storage of the host failed during the copy of the volume.'),
    _('Stop the instance, and ask an administrator to repair the storage.'),
    _('Repair the disk; the volume service then rebuilds the clone.'))
METADATA_TOO_SMALL = _message(
    'METADATA_TOO_SMALL', 'LC13', _OF_EXISTING,
    _('The copy of the volume between two hosts has stopped. No data is '
      'lost.'),
    _('Ask an administrator to continue the copy. %(again)s afterwards.'),
    _('Extend the metadata LV named in the log, and run "cinder-localclone '
      'volume repair".'))
METADATA_LOST = _message(
    'METADATA_LOST', 'LC14', _OF_EXISTING,
    _('The copy of the volume between two hosts was damaged.'),
    _RECOVER,
    _('See "Losing a disk" in :doc:`/operate/disks`.'))
WRONG_SOURCE = _message(
    'WRONG_SOURCE', 'LC06', [_A.ATTACH, _A.MOVE, _A.CLONE],
    _('The host was given the wrong disk for this volume, and did not use '
      'it.'),
    _('Ask an administrator to examine the storage network. %(again)s '
      'afterwards.'),
    _('Check which iSCSI targets export the name in the log.'))

# -- sources of new volumes

FOREIGN_IMAGE = _message(
    'FOREIGN_IMAGE', 'LC24', [_A.CLONE],
    _('The source of the volume is on other storage, or its size or '
      'encryption does not match.'),
    _('Delete the volume. Create another with the type and at least the size '
      'of the source.'),
    _('Nothing; the log of the volume service has the difference.'))
SNAPSHOT_DIFFERS = _message(
    'SNAPSHOT_DIFFERS', 'LC59', [_A.REVERT],
    _('The snapshot is on other storage, or its size or encryption does not '
      'match the volume.'),
    _('Create a volume from the snapshot instead.'),
    _('Nothing; the log of the volume service has the difference.'))
NAME_TAKEN = _message(
    'NAME_TAKEN', 'LC60', _CREATES,
    _('The host already has data under the name of the new volume.'),
    _('Create another volume, and ask an administrator to examine this '
      'volume.'),
    _('Find the owner of the LV in the log before you delete the volume.'))

# -- encryption, and volume types

ENCRYPTED = _message(
    'ENCRYPTED', 'LC17', [_A.CREATE, _A.CLONE, _A.MOVE],
    _('This storage does not support the encryption of this volume type.'),
    _('Use another volume type, or ask an administrator to correct the '
      'type.'),
    _('Change the encryption of the type to the provider luks with front-end '
      'control, or to the encryption of this driver.'))
ENCRYPTION_TYPE = _message(
    'ENCRYPTION_TYPE', 'LC32',
    [_A.CREATE, _A.CLONE, _A.MOVE, _A.RETYPE, _A.MANAGE],
    _('This storage cannot provide the encryption that the volume type asks '
      'for.'),
    _('Use another volume type, or ask an administrator to correct the '
      'type.'),
    _('Correct the extra specs or the encryption of the type.'))
PACE_TYPE = _message(
    'PACE_TYPE', 'LC43',
    [_A.CREATE, _A.CLONE, _A.MOVE, _A.RETYPE, _A.MANAGE],
    _('The pace of copies in the volume type is unknown to this storage.'),
    _('Use another volume type, or ask an administrator to correct the '
      'type.'),
    _('Correct the extra spec localclone:pace of the type.'))
ENCRYPTION_CHANGE = _message(
    'ENCRYPTION_CHANGE', 'LC34', [_A.ATTACH, _A.MOVE, _A.RETYPE],
    _('The encryption of a volume cannot be changed in place.'),
    _('Create a volume of the new type, and copy the data in an instance that '
      'has both volumes.'),
    _('Nothing.'))
ENCRYPTED_REMOTE = _message(
    'ENCRYPTED_REMOTE', 'LC35', [_A.ATTACH],
    _('An encrypted volume can be used only on hosts with this storage.'),
    _('Attach the volume to an instance on such a host.'),
    _('Run the volume service on the host, or schedule the instance to a host '
      'with it.'))
MOVES_COLD = _message(
    'MOVES_COLD', 'LC38', [_A.ATTACH],
    _('A volume of this type moves only while it is detached.'),
    _('Detach the volume, and attach it again on the other host.'),
    _('Detach the volume before the migration of its instance.'))
KEEPS_SIZE = _message(
    'KEEPS_SIZE', 'LC42', [_A.EXTEND],
    _('A volume of this type cannot be extended.'),
    _('Ask an administrator to reset the status of the volume, and copy the '
      'data to a larger volume.'),
    _('Reset the status of the volume.'))
FRESH_ENCRYPTED = _message(
    'FRESH_ENCRYPTED', 'LC40', [_A.ATTACH],
    _('A backup cannot be restored to a volume of this type before the volume '
      'was attached once.'),
    _('Attach the volume and restore the backup again, or restore it to a '
      'volume of another type.'),
    _('Nothing, or offer a type with localclone:zeroed=true.'))
KEY_UNREADABLE = _message(
    'KEY_UNREADABLE', 'LC33', [_A.CREATE, _A.IMAGE],
    _('The key of the volume could not be read with the rights of this '
      'request.'),
    _('%(again)s as a user who may read the key.'),
    _('Check the roles of the user in the key manager.'))
KEY_UNAVAILABLE = _message(
    'KEY_UNAVAILABLE', 'LC36', _ANY - {_A.MANAGE},
    _('The key manager does not answer.'), _then_ask(_('%(again)s later.')),
    _('Start the key manager, and check the connection of the host to it.'))
KEY_UNUSABLE = _message(
    'KEY_UNUSABLE', 'LC61', _ANY - {_A.MANAGE},
    _('The storage cannot use the key of the volume.'),
    _('Ask an administrator to examine the key. %(again)s afterwards.'),
    _('The secret must exist, be readable for the service, and open the '
      'volume: "cinder-localclone encryption show".'))
HEADER_DAMAGED = _message(
    'HEADER_DAMAGED', 'LC37', _OF_SOURCES,
    _('The encryption header of %(volume)s cannot be used; nothing was '
      'written to it.'), _KEEP,
    _('Find the cause in the log before you restore a backup of the header; '
      'see :doc:`/operate/keys`.'))
ENCRYPTION_CHECK = _message(
    'ENCRYPTION_CHECK', 'LC62', _OF_SOURCES,
    _('The encryption of %(volume)s failed a security check.'), _KEEP,
    _('Find the program that has changed the header or the crypt device.'))
REENCRYPTING = _message(
    'REENCRYPTING', 'LC41', _OF_SOURCES,
    _('%(volume)s is being re-encrypted.'),
    _('%(again)s when the re-encryption has ended.'),
    _('Check it with "cinder-localclone encryption show"; continue a paused '
      're-encryption with "reencryption resume".'))
REENCRYPTION_STOPPED = _message(
    'REENCRYPTION_STOPPED', 'LC63', _OF_SOURCES,
    _('The re-encryption of %(volume)s was interrupted.'),
    _('Stop the instance, or detach that volume. %(again)s when the '
      're-encryption has ended.'),
    _('Stop the instance, or detach the volume: the driver then continues the '
      're-encryption.'))

# -- deletes, and existing logical volumes

NOT_DELETED = _message(
    'NOT_DELETED', 'LC44', [_A.DELETE],
    _('The volume is in use or is being moved, or its storage did not answer '
      'in time. None of its data was removed.'),
    _('Delete the volume, or its group, again.'),
    _('If the delete fails again, the log has the user of the volume.'))
HALF_DELETED = _message(
    'HALF_DELETED', 'LC45', [_A.DELETE],
    _('The volume was not deleted completely, and its data may be '
      'incomplete.'),
    _('Ask an administrator to delete it again; if the volume is in a group, '
      'you can delete the group again.'),
    _('Delete it with "openstack volume delete --force".'))
NOT_MANAGED = _message(
    'NOT_MANAGED', 'LC30', [_A.MANAGE],
    _('This storage cannot manage the named logical volume, which is '
      'unchanged.'),
    _('Check the name of the logical volume. %(again)s.'),
    _('The log of the volume service has the reason.'))
NOT_UNMANAGED = _message(
    'NOT_UNMANAGED', 'LC31', [_A.UNMANAGE],
    _('The volume is still managed: it is in use, being moved, encrypted or '
      'incomplete, or its storage failed.'),
    _('Detach the volume, wait for the end of its move, and unmanage it '
      'again.'),
    _('The log of the volume service has the reason.'))
