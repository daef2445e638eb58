# SPDX-License-Identifier: Apache-2.0
"""The driver's errors: what happened, what was undone, what to do.

Each class has the text for the operator's log, with hosts and devices, and
names its messages to the member of a project whose request failed.
"""

from typing import Any

from cinder import exception
from cinder.i18n import _

from cinder_localclone.core import outcomes
from cinder_localclone.core.outcomes import Outcome
from cinder_localclone.core import user_messages

#: Error classes by name: a peer sends the name and the text only.
_CLASSES: dict[str, type['LocalCloneError']] = {}


class LocalCloneError(exception.VolumeDriverException):
    """Base of the driver's errors.

    The operator reads problem, outcome and remedy, in this order. A class with
    its own problem inherits neither of the others. In a text,
    ``%(of_volume)s`` names the volume if the error has a ``volume``.

    :cvar problem: what happened
    :cvar outcome: the state after the error
    :cvar remedy: the action for the operator
    :cvar member_reads: the messages to the member of a project, for different
        requests. Never inherited: the cause of a class need not be true of a
        subclass. Without a message for a request, the default of the request
        is sent
    """

    problem = message = _('%(reason)s')
    outcome = Outcome.UNKNOWN
    remedy = ''
    member_reads: tuple[user_messages.UserMessage, ...] = ()

    def __init_subclass__(cls, of_peers: bool = True, **kwargs: Any) -> None:
        """Register a class, and build its text for Cinder.

        :param of_peers: whether an error raised by a peer is raised here again
        :raises TypeError: if the class sets ``message`` itself
        """
        super().__init_subclass__(**kwargs)
        if of_peers:
            _CLASSES[cls.__name__] = cls
        if 'message' in cls.__dict__:
            raise TypeError('%s has a message of its own' % cls.__name__)
        cls.member_reads = cls.__dict__.get('member_reads', ())
        if 'problem' in cls.__dict__:
            cls.outcome = cls.__dict__.get('outcome', Outcome.UNKNOWN)
            cls.remedy = cls.__dict__.get('remedy', '')
        cls.message = outcomes.in_words(cls.problem, cls.outcome, cls.remedy)

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        volume = kwargs.get('volume')
        if 'reason' in kwargs:
            kwargs['reason'] = self._in_place(str(kwargs['reason']))
        super().__init__(message, of_volume=_(' of volume %s') % volume
                         if volume else '', **kwargs)

    @classmethod
    def _in_place(cls, reason: str) -> str:
        """Return a reason so that exactly one full stop follows it."""
        rest = cls.message.partition('%(reason)s')[2]
        if rest.startswith(' ') and not reason.endswith(('.', '!', '?')):
            return reason + '.'
        return (reason.removesuffix('.') if rest.startswith(('.', ').'))
                else reason)


def class_named(name: str) -> type[LocalCloneError]:
    """Return the class of an error raised by a peer.

    :returns: the base class if the name is unknown
    """
    return _CLASSES.get(name, LocalCloneError)


def is_unexpected(error: Exception) -> bool:
    """Return whether the log needs the traceback of an error."""
    return not isinstance(error, LocalCloneError)


class InvalidTransition(LocalCloneError):
    """A transition missing in the table of the state machine."""

    problem = _('The move%(of_volume)s is in phase "%(phase)s" '
                '(%(committed)s). "%(event)s" is not possible in this phase.')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.MOVE_BUSY,)


class InvalidToken(LocalCloneError):
    """A token column of a move record with unreadable content."""

    problem = _('The move record%(of_volume)s can\'t be read: "%(token)s" '
                '(%(reason)s).')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.STORAGE_FAULT,)


class StaleMove(LocalCloneError):
    """A move, or its volume, changed after it was read."""

    problem = _('Volume %(volume)s was moved, changed or deleted by another '
                'request at the same time.')
    outcome = Outcome.NOT_COMPLETED
    remedy = _('try again.')
    member_reads = (user_messages.CHANGED,)


class Refused(LocalCloneError):
    """A connection refused before any change."""

    problem = _('Volume %(volume)s cannot be connected to %(host)s: '
                '%(reason)s')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.REFUSED,)


class AttachedElsewhere(Refused):
    """Refused because another instance has the volume."""

    member_reads = (user_messages.ATTACHED_ELSEWHERE,)


class MoveUnderWay(Refused):
    """Refused because a move of the volume has to end first."""

    member_reads = (user_messages.MOVE_BUSY,)


class NotMovable(LocalCloneError):
    """A volume that can't be moved to a node, or copied there by Cinder."""

    problem = _('Volume %(volume)s cannot be moved to %(host)s: %(reason)s')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.NOT_MOVABLE,)


class IsDeferred(NotMovable):
    """An attached volume: it moves with its instance only."""

    problem = _('Volume %(volume)s cannot be moved to %(host)s: it is '
                'attached, so it moves only with its instance.')
    outcome = Outcome.UNCHANGED
    remedy = _('Migrate the instance, or detach the volume.')
    member_reads = (user_messages.FOLLOWS_INSTANCE,)


class EncryptionUnsupported(LocalCloneError):
    """A volume type with an encryption unknown to this backend."""

    problem = _('Volume %(volume)s can\'t be encrypted as its type says: '
                '%(reason)s.')
    outcome = Outcome.NOT_CREATED
    remedy = _('Correct the type: provider luks, front-end.')
    member_reads = (user_messages.ENCRYPTED,)


class BeingCopied(LocalCloneError):
    """An operation refused during a copy: it needs all data at the home.

    :param progress: the progress of the copy, in words
    """

    problem = _('Volume %(volume)s is still being copied to %(host)s '
                '(%(progress)s). No snapshot or clone of it can be made '
                'during the copy.')
    outcome = Outcome.UNCHANGED
    remedy = _('try again when the copy has ended.')
    member_reads = (user_messages.BEING_COPIED,)


class NeedsThin(LocalCloneError):
    """A snapshot or clone of a thick volume."""

    problem = _('Snapshots and clones need thin volumes (lvm_type). The '
                'volumes on %(host)s are thick.')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.NEEDS_THIN, user_messages.BACKUP_NEEDS_THIN)


class PoolFull(LocalCloneError):
    """A thin pool almost without space for writes."""

    problem = _('Thin pool %(pool)s on %(host)s is too full for snapshots and '
                'clones: %(usage)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Extend the pool (lvextend), or delete volumes on %(host)s.')
    member_reads = (user_messages.POOL_FULL,)


class ForeignImage(LocalCloneError):
    """A source of a new volume out of this backend's reach."""

    problem = _('A volume can\'t be created from %(image)s here: %(reason)s.')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.FOREIGN_IMAGE,
                    user_messages.SNAPSHOT_DIFFERS)


class TooLate(LocalCloneError, exception.MetadataUpdateFailure):
    """A request carried out after its client has cancelled it.

    The base keeps Cinder from trying another node: this would clear the home
    of the volume.
    """

    problem = _('%(what)s was changed or deleted before this request was '
                'carried out.')
    outcome = Outcome.NOT_COMPLETED
    member_reads = (user_messages.CHANGED,)


class NotCreated(LocalCloneError, exception.MetadataUpdateFailure):
    """A volume not created from an image. Cinder must try no other node.

    The member reads the message of its cause.
    """


class NotReverted(LocalCloneError):
    """A failed revert. The cause is hidden from Cinder.

    After some errors Cinder itself would copy the data.
    """

    problem = _('Volume %(volume)s was not reverted: %(reason)s')


class NotPossible(LocalCloneError):
    """An operation of the operator refused for a volume."""

    problem = _('Volume %(volume)s: %(reason)s')
    outcome = Outcome.UNCHANGED


class UnreadableTag(LocalCloneError):
    """A tag of an LV with a length in it, but not as a number.

    :param tags: all tags with a length
    """

    problem = _('LV %(lv)s can\'t be used: the driver can\'t read its tags '
                '%(tags)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Another program has changed these tags: correct them with '
               'lvchange --deltag and --addtag. The earlier values are in '
               '/etc/lvm/archive.')
    member_reads = (user_messages.STORAGE_FAULT,)


class OtherVersion(LocalCloneError):
    """Another node runs a version of the driver with other RPC methods."""

    problem = _('The volume service %(host)s runs another version of this '
                'driver.')
    outcome = Outcome.UNCHANGED
    remedy = _('update the driver on all nodes, then restart the volume '
               'services.')
    member_reads = (user_messages.UPGRADE,)


class PeerUnreachable(LocalCloneError):
    """Another node's volume service does not answer.

    :param method: the method called
    """

    problem = _('The volume service %(host)s did not answer "%(method)s" '
                'within %(seconds)s s.')
    remedy = _('Check that the service is running and can reach the message '
               'bus.')
    member_reads = (user_messages.PEER_UNREACHABLE,)


class HomeUnreachable(PeerUnreachable):
    """The volume service of a volume's home does not answer."""

    member_reads = (user_messages.HOME_UNREACHABLE,)


class SnapshotUnreachable(PeerUnreachable):
    """The volume service of a snapshot's node does not answer."""

    member_reads = (user_messages.SNAPSHOT_UNREACHABLE,)


class UserUnreachable(PeerUnreachable):
    """The volume service of a node connected over iSCSI does not answer."""

    member_reads = (user_messages.USER_UNREACHABLE,)


class PeerDown(PeerUnreachable):
    """A volume service not called: Cinder's records say it is down."""

    problem = _('The volume service %(host)s is down: Cinder has received no '
                'heartbeat from it for longer than service_down_time.')
    outcome = Outcome.UNCHANGED
    remedy = _('Start the service, or check the clock of its node.')
    member_reads = (user_messages.PEER_UNREACHABLE,)


class VolumeIsMoving(LocalCloneError):
    """An operation refused during a move.

    :param what: the operation as a participle, such as "extended"
    """

    problem = _('Volume %(volume)s can\'t be %(what)s while it is being moved '
                '(%(phase)s).')
    outcome = Outcome.UNCHANGED
    remedy = _('try again when the move has ended.')
    member_reads = (user_messages.MOVE_BUSY,)


class LongerThanRecorded(LocalCloneError):
    """A volume with, possibly, more data than the size in its row.

    An extension failed after its LV, or its handle, had grown. A copy of the
    size in the row would cut off the rest.

    :param found: GiB seen by users, at most
    :param size: GiB in the row
    :param kept: GiB left after the operation
    """

    problem = _('Volume %(volume)s has %(found)s GiB on %(host)s and %(size)s '
                'GiB in Cinder\'s database: an extension has failed. Its data '
                'beyond %(kept)s GiB would be lost.')
    outcome = Outcome.UNCHANGED
    remedy = _('Extend the volume to %(found)s GiB or more, and repeat the '
               'request.')
    member_reads = (user_messages.EXTEND_AGAIN, user_messages.EXTEND_FURTHER)


class NoSpaceToExtend(LocalCloneError):
    """Too little free space to extend a volume."""

    problem = _('%(host)s lacks space to extend volume %(volume)s: '
                '%(reason)s.')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.NO_SPACE_TO_EXTEND,)


class NoFreeSpace(LocalCloneError):
    """Too little free space at the destination of a move."""

    problem = _('%(host)s does not have enough free space for a volume of '
                '%(size)s GiB: %(reason)s.')
    outcome = Outcome.NOT_CREATED
    member_reads = (user_messages.NO_FREE_SPACE,)


class PoolDoesNotZero(LocalCloneError):
    """A thin pool with bytes of deleted volumes in its new volumes."""

    problem = _('Thin pool %(pool)s on %(host)s does not zero new blocks: the '
                'volume would show data of deleted volumes.')
    outcome = Outcome.NOT_CREATED
    remedy = _('Run "lvchange -Zy %(pool)s" on %(host)s.')
    member_reads = (user_messages.NOT_READY,)


class NotReady(LocalCloneError):
    """A destination lacks a requirement of a move."""

    problem = _('%(host)s can\'t take the volume: %(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Run "cinder-localclone doctor" on %(host)s.')
    member_reads = (user_messages.NOT_READY,)


class SourceBusy(LocalCloneError):
    """A volume still open on the source."""

    problem = _('Volume %(volume)s is still open on %(host)s (open count of '
                '%(device)s: %(count)s).')
    outcome = Outcome.UNCHANGED
    remedy = _('Close the volume on %(host)s, and try again.')
    member_reads = (user_messages.SOURCE_BUSY,)


class DestinationWritten(LocalCloneError):
    """A rollback of a live move refused: it would lose data."""

    problem = _('The live move of volume %(volume)s can\'t be rolled back: '
                'the volume was already written on %(host)s (%(regions)s '
                'regions), and these writes would be lost.')
    outcome = Outcome.UNCHANGED
    remedy = _('If the instance runs on %(host)s, close the volume on the '
               'source, then run "cinder-localclone move complete".')
    member_reads = (user_messages.DESTINATION_WRITTEN,)


class CloneFailed(LocalCloneError):
    """A clone stopped by the kernel."""

    problem = _('The clone of volume %(volume)s on %(host)s is in mode '
                '"%(mode)s": its metadata or its disk failed. It is unknown '
                'which regions were written.')
    outcome = Outcome.UNCHANGED
    remedy = _('Repair the disk and stop the instance; the volume service '
               'then rebuilds the clone.')
    member_reads = (user_messages.CLONE_FAILED,)


class WrongSource(LocalCloneError):
    """A login that gave another disk than the source of the move."""

    problem = _('The disk %(device)s, exported by %(iqn)s, is not the '
                'expected disk%(of_volume)s: %(reason)s.')
    outcome = Outcome.NOT_USED
    remedy = _('Check which targets export this name.')
    member_reads = (user_messages.WRONG_SOURCE,)


class MissingData(LocalCloneError):
    """A required device or LV is gone. It is never created again."""

    problem = _('%(what)s%(of_volume)s is missing on %(host)s. The driver '
                'did not create an empty replacement.')
    remedy = _('See "Losing a disk" on the page "Lost or damaged disks".')
    member_reads = (user_messages.DATA_MISSING,)


class Foreign(LocalCloneError):
    """A device of another owner: the privileged process refuses it."""

    problem = _('The name "%(name)s" does not belong to the driver.')
    outcome = Outcome.NOT_DONE
    remedy = _('This is a defect of the driver.')


class ForeignGroup(LocalCloneError):
    """A request to the privileged process about another volume group."""

    problem = _('No backend of this driver has the volume group %(group)s in '
                'the configuration of the privileged process (%(files)s).')
    outcome = Outcome.NOT_DONE
    remedy = _('If helper_command is set, it must name the configuration '
               'files of the service.')
    member_reads = (user_messages.STORAGE_FAULT,)


class WrongDevice(LocalCloneError):
    """A path to another device than its name says."""

    problem = _('%(path)s leads to %(found)s instead of the device of this '
                'name.')
    outcome = Outcome.UNCHANGED
    remedy = _('Find out which program changed the path ("ls -l %(path)s", '
               '"dmsetup info -c").')
    member_reads = (user_messages.STORAGE_FAULT,)


class MetadataTooSmall(LocalCloneError):
    """A metadata LV of a move, shrunk by another program."""

    problem = _('%(device)s, the record of the copied regions of volume '
                '%(volume)s, has %(found)s bytes but needs %(needed)s: the '
                'kernel crashes when this record is full.')
    outcome = Outcome.NOT_AVAILABLE
    remedy = _('Extend the LV ("lvextend -L %(needed)sb %(device)s"), then '
               'run "cinder-localclone volume repair".')
    member_reads = (user_messages.METADATA_TOO_SMALL,)


class MetadataLost(LocalCloneError):
    """A metadata LV of a committed move, overwritten by another program."""

    problem = _('%(device)s, the record of the copied regions of volume '
                '%(volume)s, is blank: another program has overwritten it. '
                'Without the record the volume would read older data instead '
                'of the writes since the move began.')
    outcome = Outcome.NOT_AVAILABLE
    remedy = _('See "Losing a disk" on the page "Lost or damaged disks".')
    member_reads = (user_messages.METADATA_LOST,)


class CommandFailed(LocalCloneError):
    """A command with an exit code of failure."""

    problem = _('"%(command)s" failed with exit code %(code)s: %(stderr)s')


class CommandTimeout(LocalCloneError):
    """A command killed at its time limit."""

    problem = _('"%(command)s" did not end within %(seconds)s s and was '
                'killed.')
    member_reads = (user_messages.TIMEOUT,)


class Busy(LocalCloneError):
    """A lock held by other work on this node.

    :param what: the locked object, such as "Volume <id>"
    """

    problem = _('%(what)s is still locked by another request on %(host)s '
                'after %(seconds)s s.')
    outcome = Outcome.NOT_COMPLETED
    remedy = _('try again.')
    member_reads = (user_messages.BUSY,)


class ExportFailed(LocalCloneError):
    """A change of the iSCSI target refused by the kernel."""

    problem = _('The iSCSI target of this node could not be changed: '
                '%(reason)s. The next periodic check repairs the exports.')
    remedy = _('If this error remains, run "cinder-localclone doctor" on this '
               'node.')


class LoginFailed(LocalCloneError):
    """A login to the source without a disk as its result."""

    problem = _('The iSCSI login to %(iqn)s at %(portal)s gave no disk: '
                '%(reason)s.')
    remedy = _('See the log of this node\'s cinder-volume, and the kernel log '
               'of the source.')
    member_reads = (user_messages.SOURCE_UNREACHABLE,)


class SourceUnreachable(LocalCloneError):
    """The source of a move accepts no iSCSI connection."""

    problem = _('The iSCSI portal %(portal)s of the source accepts no '
                'connection: %(reason)s. Until the portal answers, this node '
                'can read only the data already copied.')
    remedy = _('Check the source node, and the network between the source and '
               'this node.')
    member_reads = (user_messages.SOURCE_UNREACHABLE,)


class TargetTimeout(CommandTimeout):
    """A change of this node's iSCSI target hangs in the kernel."""

    problem = _('The iSCSI target of this node could not be changed within '
                '%(seconds)s s: this change, or an earlier change, hangs in '
                'the kernel and can\'t be killed. Volumes without exports are '
                'not affected.')
    remedy = _('See the kernel log of this node.')
    member_reads = (user_messages.TIMEOUT,)


class TargetHangs(TargetTimeout):
    """A change not begun: an earlier change hangs in the kernel."""

    problem = _('The iSCSI target of this node was not changed: an earlier '
                'change of %(target)s has hung in the kernel since %(since)s '
                'and can\'t be killed. The earlier change ends when its '
                'device answers or fails.')
    remedy = _('See the kernel log of this node for the device.')
    member_reads = (user_messages.TIMEOUT,)


class CannotDelete(LocalCloneError, exception.VolumeIsBusy):
    """A volume that can't be deleted now, and is complete.

    The base makes Cinder's manager set the status back to available.
    """

    problem = _('Volume %(volume)s can\'t be deleted now: %(reason)s')
    outcome = Outcome.NOT_REMOVED
    remedy = _('Delete the volume, or its group, again.')
    member_reads = (user_messages.NOT_DELETED,)


class HalfDeleted(LocalCloneError):
    """A volume deleted in part, or possibly in part."""

    problem = _('Volume %(volume)s was not deleted completely: %(reason)s')
    outcome = Outcome.HALF_REMOVED
    remedy = _('Delete it again as an administrator (openstack volume delete '
               '--force); if the volume is in a group, the group can be '
               'deleted again.')
    member_reads = (user_messages.HALF_DELETED,)


class CannotManage(LocalCloneError,
                   exception.ManageExistingInvalidReference):
    """An LV that can't be managed."""

    problem = _('Logical volume %(lv)s on %(host)s can\'t be managed: '
                '%(reason)s.')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.NOT_MANAGED,)


class CannotUnmanage(LocalCloneError, exception.VolumeIsBusy):
    """A volume that can't be unmanaged now.

    The base makes Cinder's manager set the status back to available.
    """

    problem = _('Volume %(volume)s can\'t be unmanaged: %(reason)s.')
    outcome = Outcome.UNCHANGED
    member_reads = (user_messages.NOT_UNMANAGED,)


class SnapshotInUse(LocalCloneError, exception.SnapshotIsBusy):
    """A snapshot in use can't be unmanaged now."""

    problem = _('Snapshot %(snapshot)s can\'t be unmanaged: a host is reading '
                'it.')
    outcome = Outcome.UNCHANGED
    remedy = _('try again when the read has ended.')


class TooFewDisks(LocalCloneError):
    """A volume group with fewer disks than stripes."""

    problem = _('Volume group %(group)s on %(host)s is on %(disks)s disks, '
                'and localclone_thick_stripes is %(stripes)s.')
    outcome = Outcome.NOT_CREATED
    remedy = _('Add disks to the group (vgextend), or lower '
               'localclone_thick_stripes.')
    member_reads = (user_messages.NOT_READY,)


class OddDisks(LocalCloneError):
    """A volume group of disks with an unreadable sector size."""

    problem = _('The sector size of the disks of volume group %(group)s on '
                '%(host)s can\'t be read.')
    outcome = Outcome.UNCHANGED
    remedy = _('Run "vgs -o pv_name %(group)s" on %(host)s to list the disks.')
    member_reads = (user_messages.NOT_READY,)


class DiskMissing(LocalCloneError):
    """A volume group without a disk: LVM changes nothing in it."""

    problem = _('Volume group %(group)s on %(host)s lacks %(count)s of its '
                'disks: LVM creates and changes nothing in it.')
    remedy = _('Bring the disk back (vgck %(group)s names it), or give it up '
               'with vgreduce --removemissing %(group)s.')
    member_reads = (user_messages.STORAGE_FAULT,)


class NoArchive(LocalCloneError):
    """No space for LVM's archive of a group's metadata.

    LVM changes nothing while it can't write there.
    """

    problem = _('LVM on %(host)s can\'t write its archive: %(directory)s has '
                '%(free)s KiB of free space. LVM creates and changes nothing '
                'until more space is free there.')
    remedy = _('Remove old files from %(directory)s.')
    member_reads = (user_messages.STORAGE_FAULT,)


class AlreadyThere(LocalCloneError,
                   exception.MetadataUpdateFailure):
    """An LV with the name of a new volume, possibly in use.

    The base keeps Cinder from trying another node: this would clear the home
    of a volume.
    """

    problem = _('Volume %(volume)s was not created: LV %(lv)s already exists '
                'on %(host)s and may contain data of another user.')
    outcome = Outcome.UNCHANGED
    remedy = _('Create another volume.')
    member_reads = (user_messages.NAME_TAKEN,)


class SourceWritten(LocalCloneError):
    """A source written after its holes were read."""

    problem = _('Volume %(volume)s was written on %(host)s after its handle '
                'was closed, while its move began.')
    outcome = Outcome.UNCHANGED
    remedy = _('Close the volume on %(host)s, and try again.')
    member_reads = (user_messages.SOURCE_BUSY,)


class PoolFails(LocalCloneError):
    """A thin pool without working metadata."""

    problem = _('Thin pool %(pool)s of %(host)s is in mode "%(mode)s": the '
                'pool can\'t write its metadata, and the latest writes may be '
                'lost.')
    remedy = _('Stop the guests on %(host)s, reboot the node, and extend the '
               'metadata LV of the pool if it is full.')
    member_reads = (user_messages.STORAGE_FAULT,)


class PoolOutOfSpace(LocalCloneError):
    """A full thin pool."""

    problem = _('Thin pool %(pool)s of %(host)s is full: extend the pool, or '
                'delete volumes or snapshots.')
    member_reads = (user_messages.STORAGE_FULL,)


class SourceUnread(LocalCloneError):
    """A read error at the source."""

    problem = _('%(disk)s can\'t be read at byte %(first)d: %(reason)s')


class TakesLong(LocalCloneError):
    """An operation still running at the end of the caller's wait."""

    problem = _('the operation takes longer than %(seconds)d s')


class Lacking(LocalCloneError):
    """A copy with, possibly, missing data."""

    problem = _('The copy of volume %(volume)s on %(host)s may lack data of '
                'its source on %(source)s: a thin pool lost data, and it is '
                'unknown whether all lost data was copied again.')
    outcome = Outcome.SOURCE_KEPT
    remedy = _('Check the file system, and restore damaged files. Then end '
               'the copy without the missing data: %(end)s')


class NotAllCopied(LocalCloneError):
    """Data of the source missing in its copy, after it was copied again."""

    problem = _('%(size)d KiB of volume %(volume)s are still missing on '
                '%(host)s, although they were copied from the source again.')
    outcome = Outcome.SOURCE_KEPT
    remedy = _('See dmesg for errors of the thin pool. To end the copy '
               'without the missing data: %(end)s')


class NotRefilled(LocalCloneError):
    """Lost data of a copy, impossible to copy again now."""

    problem = _('The thin pool of %(host)s has lost data of volume '
                '%(volume)s, and some of it could not be copied from '
                '%(source)s again: %(reason)s.')
    outcome = Outcome.SOURCE_KEPT
    remedy = _('The driver tries again. If every try fails, check the file '
               'system, restore damaged files, and end the copy without the '
               'missing data: %(end)s')


class Forgotten(LocalCloneError):
    """A source on a forgotten node."""

    problem = _('the source node %(host)s was forgotten')
