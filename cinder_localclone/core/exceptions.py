# SPDX-License-Identifier: Apache-2.0
"""The driver's errors: what happened, what was undone, what to do.

``user_message`` names the entry of :mod:`.messages` that
the owner of the volume gets to read (``openstack volume message list``);
the exception's own text, with hosts and devices, is for the operator's log.
"""

from typing import Any

from cinder import exception
from cinder.i18n import _

from cinder_localclone.core import names


class LocalCloneError(exception.VolumeDriverException):
    """Base of the driver's errors.

    A text with ``%(of_volume)s`` names the volume where ``volume`` is given.
    """

    message = _('%(reason)s')
    user_message = 'FAILED'

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        volume = kwargs.get('volume')
        super().__init__(message, of_volume=_(' of volume %s') % volume
                         if volume else '', **kwargs)


def is_unexpected(error: Exception) -> bool:
    """Return whether the log needs the traceback of an error."""
    return not isinstance(error, LocalCloneError)


class InvalidTransition(LocalCloneError):
    """The table of the state machine has no such transition."""

    message = _('The move%(of_volume)s is in phase "%(phase)s" '
                '(%(committed)s), in which "%(event)s" is not possible. '
                'Nothing was changed.')
    user_message = 'MOVE_BUSY'


class InvalidToken(LocalCloneError):
    """The column that holds a move's state holds something else."""

    message = _('The move record%(of_volume)s can\'t be read: "%(token)s" '
                '(%(reason)s). The driver did not change the record.')


class StaleMove(LocalCloneError):
    """What was read of a move is not true any more."""

    message = _('Volume %(volume)s was moved, changed or deleted by another '
                'request at the same time. This request was not completed; '
                'try again.')
    user_message = 'MOVE_BUSY'


class Refused(LocalCloneError):
    """A connection that is not served, decided before anything is touched."""

    message = _('Volume %(volume)s cannot be connected to %(host)s: '
                '%(reason)s Nothing was changed.')
    user_message = 'REFUSED'


class AttachedElsewhere(Refused):
    """Refused because another instance has the volume."""

    user_message = 'ATTACHED_ELSEWHERE'


class MoveUnderWay(Refused):
    """Refused because a move of the volume has to end first."""

    user_message = 'MOVE_BUSY'


class NotMovable(LocalCloneError):
    """A volume that is not moved, or copied by Cinder, to a node."""

    message = _('Volume %(volume)s cannot be moved to %(host)s: %(reason)s '
                'Nothing was changed.')
    user_message = 'NOT_MOVABLE'


class FollowsInstance(NotMovable):
    """A volume that is attached goes where its instance goes."""

    message = _('Volume %(volume)s cannot be moved to %(host)s: it is '
                'attached and follows its instance. Migrate the instance, or '
                'detach the volume. Nothing was changed.')
    user_message = 'FOLLOWS_INSTANCE'


class EncryptionUnsupported(LocalCloneError):
    """A volume of a type whose encryption this backend does not take."""

    message = _('Volume %(volume)s can\'t be encrypted as its type says: '
                '%(reason)s. Nothing was created. Correct the type: provider '
                'luks, front-end.')
    user_message = 'ENCRYPTED'


class BeingCopied(LocalCloneError):
    """What needs all of a volume at its home, while some is elsewhere yet.

    :param progress: how far the copy is, in words
    """

    message = _('Volume %(volume)s is still being copied to %(host)s '
                '(%(progress)s), so no snapshot or clone of it can be made '
                'yet. Nothing was changed; try again when the copy has ended.')
    user_message = 'BEING_COPIED'


class NeedsThin(LocalCloneError):
    """A snapshot or clone of a thick volume."""

    message = _('Snapshots and clones need thin volumes (lvm_type), and '
                'those on %(host)s are thick. Nothing was changed.')
    user_message = 'NEEDS_THIN'


class PoolFull(LocalCloneError):
    """A thin pool in which writes may soon fail."""

    message = _('Thin pool %(pool)s on %(host)s is too full for snapshots '
                'and clones: %(usage)s. Nothing was changed. Extend it '
                '(lvextend), or delete volumes on that node.')
    user_message = 'POOL_FULL'


class ForeignImage(LocalCloneError):
    """What a volume is to be made of is out of this backend's reach."""

    message = _('A volume can\'t be made of %(image)s here: %(reason)s. '
                'Nothing was changed.')
    user_message = 'FOREIGN_IMAGE'


class TooLate(LocalCloneError, exception.MetadataUpdateFailure):
    """A request that arrives when whoever made it has given it up.

    Cinder is to try no other node: it would take its home off a volume.
    """

    message = _('%(what)s was changed or deleted before this request was '
                'carried out. The request came too late and was not '
                'completed.')


class BirthFailed(LocalCloneError, exception.MetadataUpdateFailure):
    """No volume was made of an image. Cinder is to try no other node."""

    user_message = 'CREATE_FAILED'


class NotReverted(LocalCloneError):
    """Whatever the cause: after some errors Cinder itself would copy."""

    message = _('Volume %(volume)s was not reverted: %(reason)s')
    user_message = 'NOT_REVERTED'


class NotPossible(LocalCloneError):
    """What an operator asked for cannot be done."""

    message = _('Volume %(volume)s: %(reason)s Nothing was changed.')


class UnreadableTag(LocalCloneError):
    """A tag of an LV says how long something is, but it is no number.

    :param tags: all that say it
    """

    message = _('LV %(lv)s can\'t be used: the driver can\'t read its tags '
                '%(tags)s. Nothing was changed. Another program has set one '
                'of these tags: correct the tag with lvchange --deltag and '
                '--addtag. The earlier value is in /etc/lvm/archive.')


class OtherVersion(LocalCloneError):
    """Another node runs a version of the driver that talks differently."""

    message = _('The volume service %(host)s runs another version of this '
                'driver. Nothing was changed. Update the driver on all nodes, '
                'then restart the volume services.')


class PeerUnreachable(LocalCloneError):
    """Another node's volume service does not answer.

    :param method: what it was asked for; "heartbeat": nothing, because by
        Cinder's records it is down
    """

    message = _('The volume service %(host)s did not answer "%(method)s" '
                'within %(seconds)s s. Check that the service is running and '
                'can reach the message bus.')
    user_message = 'PEER_UNREACHABLE'
    #: What goes to the volume's home, or to the node that has a snapshot;
    #: all else to the destination of a move.
    _ASKED = {
        **dict.fromkeys((
            'initialize_connection', 'terminate_connection',
            'create_snapshot', 'create_from_volume', 'unmanage', 'extend',
            'revert'),
            'HOME_UNREACHABLE'),
        **dict.fromkeys((
            'create_from_snapshot', 'create_body', 'serve_snapshot',
            'unmanage_snapshot'), 'SNAPSHOT_UNREACHABLE')}

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        if message is None and kwargs.get('method') == 'heartbeat':
            message = _('The volume service %s is down: Cinder has had no '
                        'heartbeat of it for longer than service_down_time. '
                        'Nothing was changed. Start the service, or check the '
                        'clock of its node.'
                        ) % kwargs.get('host')
        super().__init__(message, **kwargs)
        self.user_message = self._ASKED.get(
            str(kwargs.get('method')), self.user_message)


class VolumeIsMoving(LocalCloneError):
    """What was asked for has to wait until a move has ended.

    :param what: what can't be done with the volume: "extended", say
    """

    message = _('Volume %(volume)s can\'t be %(what)s while it is being moved '
                '(%(phase)s). Nothing was changed; try again when the move '
                'has ended.')
    user_message = 'MOVE_BUSY'


class LongerThanRecorded(LocalCloneError):
    """A volume of which users may have written more than its row says.

    An extension has failed after its LV, or its handle, had grown. A copy of
    as much as the row says would cut off the rest.

    :param found: GiB that users may have seen
    :param size: GiB, as the row says
    :param kept: GiB that would be left
    """

    message = _('Volume %(volume)s has %(found)s GiB on %(host)s and %(size)s '
                'GiB in Cinder\'s database: an extension has failed. Its data '
                'beyond %(kept)s GiB would be lost. Nothing was changed. '
                'Extend the volume to %(found)s GiB or more, and repeat the '
                'request.')
    user_message = 'EXTEND_AGAIN'


class NoSpaceToExtend(LocalCloneError):
    """What a volume is to be extended in is full."""

    message = _('%(host)s lacks space to extend volume %(volume)s: '
                '%(reason)s. Nothing was changed.')
    user_message = 'NO_SPACE_TO_EXTEND'


class NoFreeSpace(LocalCloneError):
    """The destination of a move is too full."""

    message = _('%(host)s has not enough free space for a volume of %(size)s '
                'GiB: %(reason)s. Nothing was created.')
    user_message = 'NO_FREE_SPACE'


class PoolDoesNotZero(LocalCloneError):
    """New volumes of a thin pool would have the bytes of deleted ones."""

    message = _('Thin pool %(pool)s on %(host)s does not zero new blocks: the '
                'volume would show data of deleted volumes. Nothing was '
                'created. Run "lvchange -Zy %(pool)s" on that host.')
    user_message = 'NOT_READY'


class NotReady(LocalCloneError):
    """The destination of a move lacks something."""

    message = _('%(host)s can\'t take the volume: %(reason)s. Nothing was '
                'changed. Run "cinder-localclone doctor" on that host.')
    user_message = 'NOT_READY'


class SourceBusy(LocalCloneError):
    """Something on the source still uses the volume."""

    message = _('Volume %(volume)s is still open on %(host)s (open count of '
                '%(device)s: %(count)s). Nothing was changed. Close the '
                'volume on that host, and try again.')
    user_message = 'SOURCE_BUSY'


class DestinationWritten(LocalCloneError):
    """Rolling a live move back would lose data."""

    message = _('The live move of volume %(volume)s can\'t be rolled back: '
                'the volume was already written on %(host)s (%(regions)s '
                'regions), and these writes would be lost. Nothing was '
                'changed. If the instance runs on %(host)s, close the volume '
                'on the source, then run "cinder-localclone resume".')
    user_message = 'DESTINATION_WRITTEN'


class CloneFailed(LocalCloneError):
    """The kernel has stopped a clone."""

    message = _('The clone of volume %(volume)s on %(host)s is in mode '
                '"%(mode)s": its metadata or its disk failed, so it is '
                'unknown which regions were written. Nothing was changed. '
                'Repair the disk and stop the instance; the volume service '
                'then rebuilds the clone.')
    user_message = 'CLONE_FAILED'


class WrongSource(LocalCloneError):
    """A login gave another disk than the source of the move."""

    message = _('%(iqn)s exports another disk (%(device)s) than the expected '
                'one%(of_volume)s: %(reason)s. The driver did not use the '
                'disk. Check which targets export that name.')
    user_message = 'WRONG_SOURCE'


class MissingData(LocalCloneError):
    """Something that must exist is gone; it is never created again."""

    message = _('%(what)s of volume %(volume)s is missing on %(host)s. The '
                'driver did not create an empty replacement. See "Losing a '
                'disk" in the administration guide.')
    user_message = 'DATA_MISSING'


class Foreign(LocalCloneError):
    """The privileged layer was asked to change what is not the driver's."""

    message = _('"%(name)s" is not one of the driver\'s own names. Nothing '
                'was done. This is a defect of the driver.')


class ForeignGroup(LocalCloneError):
    """The privileged layer was asked for LVs of another volume group."""

    message = _('No backend of this driver has the volume group %(group)s in '
                'the configuration of the privileged process (%(files)s). '
                'Nothing was done. If helper_command is set, it must name '
                'the configuration files of the service.')


class WrongDevice(LocalCloneError):
    """A path does not lead to the device that it names."""

    message = _('%(path)s does not lead to the device of that name but to '
                '%(found)s. Nothing was changed. Find out which program '
                'changed the path ("ls -l %(path)s", "dmsetup info -c").')
    user_message = 'DATA_MISSING'


class MetadataTooSmall(LocalCloneError):
    """The metadata LV of a move was shrunk."""

    message = _('%(device)s, which records the copied regions of volume '
                '%(volume)s, has %(found)s bytes but needs %(needed)s: the '
                'kernel crashes when this metadata is full. The volume was '
                'not made available. Extend the LV ("lvextend -L %(needed)sb '
                '%(device)s"), then run "cinder-localclone repair".')
    user_message = 'METADATA_TOO_SMALL'


class MetadataLost(LocalCloneError):
    """The metadata LV of a committed move was overwritten."""

    message = _('%(device)s, which records the copied regions of volume '
                '%(volume)s, is blank: another program has overwritten it. '
                'The volume was not made available, because writes since its '
                'move began would be hidden by older data. See "Losing a '
                'disk" in the administration guide.')
    user_message = 'METADATA_LOST'


class CommandFailed(LocalCloneError):
    """A command's exit code says that it failed."""

    message = _('"%(command)s" failed with exit code %(code)s: %(stderr)s')


class CommandTimeout(LocalCloneError):
    """A command was killed at its time limit."""

    message = _('"%(command)s" did not end within %(seconds)s s and was '
                'killed.')
    user_message = 'TIMEOUT'


class Busy(LocalCloneError):
    """Something is locked by other work on this node.

    :param what: such as "Volume <id>"
    """

    message = _('%(what)s is locked by another request on %(host)s. This '
                'request gave up after %(seconds)s s and was not completed; '
                'try again.')
    user_message = 'MOVE_BUSY'


class ExportFailed(LocalCloneError):
    """The kernel refused a change of the iSCSI target."""

    message = _('The iSCSI target of this node could not be changed: '
                '%(reason)s. The next periodic check repairs the exports. If '
                'this error remains, run "cinder-localclone doctor" on this '
                'node.')


class LoginFailed(LocalCloneError):
    """A login to the source gave no disk."""

    message = _('The iSCSI login to %(iqn)s at %(portal)s gave no disk: '
                '%(reason)s. See the log of this node\'s cinder-volume, and '
                'the kernel log of the source.')
    user_message = 'SOURCE_UNREACHABLE'


class SourceUnreachable(LocalCloneError):
    """The source of a move accepts no iSCSI connection."""

    message = _('The iSCSI portal %(portal)s of the source accepts no '
                'connection: %(reason)s. Until the portal answers, this node '
                'can read only data that was already copied. Check that the '
                'source node is up and that this node can reach it.')
    user_message = 'SOURCE_UNREACHABLE'


class TargetTimeout(CommandTimeout):
    """A change of this node's iSCSI target hangs in the kernel."""

    message = _('The iSCSI target of this node could not be changed within '
                '%(seconds)s s: this change, or an earlier one, hangs in the '
                'kernel and can\'t be killed. Volumes that are not exported '
                'are not affected. See the kernel log of this node.')


class TargetHangs(TargetTimeout):
    """The same, known from an earlier change: this one was not begun."""

    message = _('The iSCSI target of this node was not changed: an earlier '
                'change of %(target)s has hung in the kernel since %(since)s '
                'and can\'t be killed. It ends when the device that it waits '
                'for answers or fails. See the kernel log of this node for '
                'the device.')


class CannotDelete(LocalCloneError, exception.VolumeIsBusy):
    """A volume that can't be deleted now, and has all that it had.

    Its base makes Cinder's manager take the volume for available again.
    """

    message = _('Volume %(volume)s can\'t be deleted now: %(reason)s None of '
                'its data was removed. Delete the volume, or its group, '
                'again.')
    user_message = 'NOT_DELETED'


class HalfDeleted(LocalCloneError):
    """The same of one that has not, or of which that is not sure."""

    message = _('Volume %(volume)s was not deleted completely: %(reason)s The '
                'volume can\'t be used any more. Delete it again as an '
                'administrator (openstack volume delete --force); if the '
                'volume is in a group, the group can be deleted again.')
    user_message = 'HALF_DELETED'


def cause(error: Exception) -> Exception:
    """What the owner of a volume that was not deleted is told.

    What has become of it, whatever the reason was: other errors would say
    that it is as it was, or to try again, which he can't.
    """
    if isinstance(error, (CannotDelete, HalfDeleted)):
        return error
    if isinstance(error, exception.VolumeIsBusy):  # a node of before says so
        return CannotDelete(str(error))
    return LocalCloneError(str(error))


class CannotManage(LocalCloneError,
                   exception.ManageExistingInvalidReference):
    """An LV that somebody has named, and that is not to be managed."""

    message = _('Logical volume %(lv)s on %(host)s can\'t be managed: '
                '%(reason)s. Nothing was changed.')
    user_message = 'NOT_MANAGED'


class CannotUnmanage(LocalCloneError, exception.VolumeIsBusy):
    """A volume that has to stay managed for now.

    Its base makes Cinder's manager take the volume for available again.
    """

    message = _('Volume %(volume)s can\'t be unmanaged: %(reason)s. Nothing '
                'was changed.')
    user_message = 'NOT_UNMANAGED'


class SnapshotInUse(LocalCloneError, exception.SnapshotIsBusy):
    """The same, of a snapshot."""

    message = _('Snapshot %(snapshot)s can\'t be unmanaged: a host is reading '
                'it. Nothing was changed; try again when the read has ended.')


class TooFewDisks(LocalCloneError):
    """A volume can't have each of its stripes on another disk."""

    message = _('Volume group %(group)s on %(host)s is on %(disks)s disks, '
                'and localclone_thick_stripes is %(stripes)s. Nothing was '
                'created. Add disks to it (vgextend), or correct that '
                'option.')
    user_message = 'NOT_READY'


class OddDisks(LocalCloneError):
    """The logical block size of a node's disks can't be told."""

    message = _('The sector size of the disks of volume group %(group)s on '
                '%(host)s can\'t be read. Nothing was changed. See "vgs -o '
                'pv_name %(group)s" there.')
    user_message = 'NOT_READY'


class DiskMissing(LocalCloneError):
    """LVM changes nothing in a group that lacks a disk."""

    message = _('Volume group %(group)s on %(host)s lacks %(count)s of its '
                'disks: LVM creates and changes nothing in it. Bring the disk '
                'back (vgck %(group)s shows which), or give it up with '
                'vgreduce --removemissing %(group)s.')
    user_message = 'NOT_READY'


class NoArchive(LocalCloneError):
    """LVM changes nothing while it can't archive a group's metadata."""

    message = _('LVM on %(host)s can\'t write its archive: %(directory)s has '
                '%(room)s KiB of free space. LVM creates and changes nothing '
                'until more space is free there. Remove old files from that '
                'directory.')
    user_message = 'NOT_READY'


class AlreadyThere(LocalCloneError,
                   exception.MetadataUpdateFailure):
    """An LV where a new one is to be, which somebody may have been given.

    Cinder is to try no other node: it would take its home off a volume.
    """

    message = _('Volume %(volume)s was not created: LV %(lv)s already exists '
                'on %(host)s and may contain data of another user. Nothing '
                'was changed. Create another volume.')
    user_message = 'CREATE_FAILED'


def end(group: str, lv: str) -> str:
    """How an operator lets a copy end that may lack something.

    :param lv: of the copy
    """
    return 'lvchange --addtag %s %s' % (
        names.ACCEPTED, names.lv_path(group, lv))


class SourceWritten(LocalCloneError):
    """What was a hole of the source may be none any more."""

    message = _('Volume %(volume)s was written on %(host)s after its handle '
                'was closed, while its move began. Nothing was changed. Close '
                'the volume on that host, and try again.')
    user_message = 'SOURCE_BUSY'


class PoolFails(LocalCloneError):
    """A thin pool that can't note what it maps."""

    message = _('Thin pool %(pool)s of %(host)s is in mode "%(mode)s": it '
                'can\'t write its metadata, and what was written to it last '
                'may be lost. Stop the guests there, reboot the node, and '
                'extend the pool\'s metadata LV if it is full.')


class PoolOutOfSpace(LocalCloneError):
    """A thin pool without room for what is to be written there."""

    message = _('Thin pool %(pool)s of %(host)s is full: extend it, or delete '
                'what is not needed.')


class SourceUnread(LocalCloneError):
    """Something can't be read at the source."""

    message = _('%(disk)s can\'t be read at byte %(first)d: %(reason)s')


class TakesLong(LocalCloneError):
    """Something goes on, but not at once."""

    message = _('the operation takes longer than %(seconds)d s')


class Lacking(LocalCloneError):
    """A copy that may lack something."""

    message = _('The copy of volume %(volume)s on %(host)s may lack data that '
                'its source on %(source)s has: a thin pool lost data, and it '
                'is unknown whether all of it was copied again. The source is '
                'kept. Check the file system, and restore damaged files. Then '
                'end the copy as it is: %(end)s')


class NotAllCopied(LocalCloneError):
    """The source has what its copy has not, although that was copied."""

    message = _('%(size)d KiB of volume %(volume)s that its source has are '
                'still missing on %(host)s, although they were copied again. '
                'The source is kept. See dmesg for errors of the thin pool. '
                'To end the copy as it is: %(end)s')


class NotRefilled(LocalCloneError):
    """What was lost of a copy can't be copied again now."""

    message = _('The thin pool of %(host)s has lost data of volume '
                '%(volume)s, and not all of it could be copied again from '
                '%(source)s: %(reason)s. The source is kept, and the driver '
                'tries again. If every try fails, check the file system, '
                'restore damaged files, and end the copy as it is: %(end)s')


class Forgotten(LocalCloneError):
    """A source that can't be asked any more."""

    message = _('the source node %(host)s was forgotten')
