# SPDX-License-Identifier: Apache-2.0
"""The driver's errors: what happened, what was undone, what to do.

Each class has all that anybody reads of it: the text for the operator's log,
with hosts and devices, and what the owner of the volume reads.
"""

from typing import Any

from cinder import exception
from cinder.i18n import _

from cinder_localclone.core import outcomes
from cinder_localclone.core.outcomes import Outcome
from cinder_localclone.core.outcomes import owner_reads

#: The errors of this driver by their names: a peer sends no more of one.
_CLASSES: dict[str, type['LocalCloneError']] = {}


class LocalCloneError(exception.VolumeDriverException):
    """Base of the driver's errors.

    The operator reads problem, outcome and remedy, one after the other. A
    class that states a problem inherits neither of the others. A text with
    ``%(of_volume)s`` names the volume where ``volume`` is given.

    :cvar problem: what happened
    :cvar outcome: what that has left
    :cvar remedy: what the operator can do
    :cvar user_message: what the owner of the volume reads
    """

    problem = message = _('%(reason)s')
    outcome = Outcome.UNKNOWN
    remedy = ''
    user_message = owner_reads('FAILED', 'LC00', _(
        'The volume could not be connected; it is unchanged where it was.'))

    def __init_subclass__(cls, of_peers: bool = True, **kwargs: Any) -> None:
        """Register a class, and build the text that Cinder fills in.

        :param of_peers: whether one that a peer raises is raised here again
        """
        super().__init_subclass__(**kwargs)
        if of_peers:
            _CLASSES[cls.__name__] = cls
        if 'message' in cls.__dict__:
            raise TypeError('%s has a message of its own' % cls.__name__)
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
        """Return a reason, a sentence or not, with one full stop after it."""
        rest = cls.message.partition('%(reason)s')[2]
        if rest.startswith(' ') and not reason.endswith(('.', '!', '?')):
            return reason + '.'
        return (reason.removesuffix('.') if rest.startswith(('.', ').'))
                else reason)


def class_named(name: str) -> type[LocalCloneError]:
    """Return the class of an error that a peer has raised.

    :returns: the base of all if there is none of that name
    """
    return _CLASSES.get(name, LocalCloneError)


def is_unexpected(error: Exception) -> bool:
    """Return whether the log needs the traceback of an error."""
    return not isinstance(error, LocalCloneError)


class InvalidTransition(LocalCloneError):
    """The table of the state machine has no such transition."""

    problem = _('The move%(of_volume)s is in phase "%(phase)s" '
                '(%(committed)s), in which "%(event)s" is not possible.')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('MOVE_BUSY', 'LC07', _(
        'The volume is being moved, or is used by another request; try again '
        'later.'))


class InvalidToken(LocalCloneError):
    """The column that holds a move's state holds something else."""

    problem = _('The move record%(of_volume)s can\'t be read: "%(token)s" '
                '(%(reason)s).')
    outcome = Outcome.UNCHANGED


class StaleMove(LocalCloneError):
    """What was read of a move is not true any more."""

    problem = _('Volume %(volume)s was moved, changed or deleted by another '
                'request at the same time.')
    outcome = Outcome.NOT_COMPLETED
    remedy = _('try again.')
    user_message = InvalidTransition.user_message


class Refused(LocalCloneError):
    """A connection that is not served, decided before anything is touched."""

    problem = _('Volume %(volume)s cannot be connected to %(host)s: '
                '%(reason)s')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('REFUSED', 'LC01', _(
        'The volume cannot be connected to this host in its present state.'))


class AttachedElsewhere(Refused):
    """Refused because another instance has the volume."""

    user_message = owner_reads('ATTACHED_ELSEWHERE', 'LC10', _(
        'The volume is attached to another instance.'))


class MoveUnderWay(Refused):
    """Refused because a move of the volume has to end first."""

    user_message = InvalidTransition.user_message


class NotMovable(LocalCloneError):
    """A volume that is not moved, or copied by Cinder, to a node."""

    problem = _('Volume %(volume)s cannot be moved to %(host)s: %(reason)s')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('NOT_MOVABLE', 'LC27', _(
        'The volume cannot be moved to that host in its present state.'))


class IsDeferred(NotMovable):
    """A volume that is attached goes where its instance goes."""

    problem = _('Volume %(volume)s cannot be moved to %(host)s: it is '
                'attached and follows its instance.')
    outcome = Outcome.UNCHANGED
    remedy = _('Migrate the instance, or detach the volume.')
    user_message = owner_reads('FOLLOWS_INSTANCE', 'LC28', _(
        'The volume is attached: it moves with its instance. Migrate the '
        'instance, or detach the volume first.'))


class EncryptionUnsupported(LocalCloneError):
    """A volume of a type whose encryption this backend does not take."""

    problem = _('Volume %(volume)s can\'t be encrypted as its type says: '
                '%(reason)s.')
    outcome = Outcome.NOT_CREATED
    remedy = _('Correct the type: provider luks, front-end.')
    user_message = owner_reads('ENCRYPTED', 'LC17', _(
        'This storage cannot encrypt volumes as this volume type asks for; an '
        'administrator has to choose the provider luks with front-end '
        'control, or the storage\'s own encryption.'))


class BeingCopied(LocalCloneError):
    """What needs all of a volume at its home, while some is elsewhere yet.

    :param progress: how far the copy is, in words
    """

    problem = _('Volume %(volume)s is still being copied to %(host)s '
                '(%(progress)s), so no snapshot or clone of it can be made '
                'yet.')
    outcome = Outcome.UNCHANGED
    remedy = _('try again when the copy has ended.')
    user_message = owner_reads('BEING_COPIED', 'LC21', _(
        'The volume is still being copied to the host that it was moved to; '
        'try again when that has ended.'))


class NeedsThin(LocalCloneError):
    """A snapshot or clone of a thick volume."""

    problem = _('Snapshots and clones need thin volumes (lvm_type), and those '
                'on %(host)s are thick.')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('NEEDS_THIN', 'LC22', _(
        'This storage does not offer snapshots and clones of volumes.'))


class PoolFull(LocalCloneError):
    """A thin pool in which writes may soon fail."""

    problem = _('Thin pool %(pool)s on %(host)s is too full for snapshots and '
                'clones: %(usage)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Extend it (lvextend), or delete volumes on that node.')
    user_message = owner_reads('POOL_FULL', 'LC23', _(
        'The storage of the host that the volume is on is too full for '
        'snapshots and clones.'))


class ForeignImage(LocalCloneError):
    """What a volume is to be made of is out of this backend's reach."""

    problem = _('A volume can\'t be made of %(image)s here: %(reason)s.')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('FOREIGN_IMAGE', 'LC24', _(
        'This storage cannot make the volume of that snapshot or volume: the '
        'source is on other storage, or its size or encryption does not '
        'match.'))


class TooLate(LocalCloneError, exception.MetadataUpdateFailure):
    """A request that arrives when whoever made it has given it up.

    Cinder is to try no other node: it would take its home off a volume.
    """

    problem = _('%(what)s was changed or deleted before this request was '
                'carried out.')
    outcome = Outcome.NOT_COMPLETED


class NotCreated(LocalCloneError, exception.MetadataUpdateFailure):
    """No volume was made of an image. Cinder is to try no other node."""

    user_message = outcomes.CREATE_FAILED


class NotReverted(LocalCloneError):
    """Whatever the cause: after some errors Cinder itself would copy."""

    problem = _('Volume %(volume)s was not reverted: %(reason)s')
    user_message = owner_reads('NOT_REVERTED', 'LC29', _(
        'The volume was not reverted to the snapshot; its data is unchanged.'))


class NotPossible(LocalCloneError):
    """What an operator asked for cannot be done."""

    problem = _('Volume %(volume)s: %(reason)s')
    outcome = Outcome.UNCHANGED


class UnreadableTag(LocalCloneError):
    """A tag of an LV says how long something is, but it is no number.

    :param tags: all that say it
    """

    problem = _('LV %(lv)s can\'t be used: the driver can\'t read its tags '
                '%(tags)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Another program has set one of these tags: correct the tag '
               'with lvchange --deltag and --addtag. The earlier value is in '
               '/etc/lvm/archive.')


class OtherVersion(LocalCloneError):
    """Another node runs a version of the driver that talks differently."""

    problem = _('The volume service %(host)s runs another version of this '
                'driver.')
    outcome = Outcome.UNCHANGED
    remedy = _('update the driver on all nodes, then restart the volume '
               'services.')


class PeerUnreachable(LocalCloneError):
    """Another node's volume service does not answer.

    :param method: what it was asked for
    """

    problem = _('The volume service %(host)s did not answer "%(method)s" '
                'within %(seconds)s s.')
    remedy = _('Check that the service is running and can reach the message '
               'bus.')
    user_message = owner_reads('PEER_UNREACHABLE', 'LC02', _(
        'The volume service of the destination host does not answer; the '
        'volume stays where it was.'))


class HomeUnreachable(PeerUnreachable):
    """The same of a volume's home."""

    user_message = owner_reads('HOME_UNREACHABLE', 'LC11', _(
        'The volume service of a host that has the volume does not answer; '
        'try again when that host is back.'))


class SnapshotUnreachable(PeerUnreachable):
    """The same of the node that has a snapshot."""

    user_message = owner_reads('SNAPSHOT_UNREACHABLE', 'LC25', _(
        'The volume service of the host that the snapshot is on does not '
        'answer; try again when that host is back.'))


class UserUnreachable(PeerUnreachable):
    """The same of a node that uses a volume over iSCSI, or is to use it."""

    user_message = owner_reads('USER_UNREACHABLE', 'LC48', _(
        'The volume service of a host that uses the volume, or is to use it, '
        'does not answer; try again when that host is back.'))


class PeerDown(PeerUnreachable):
    """A volume service that is not asked: by Cinder's records it is down."""

    problem = _('The volume service %(host)s is down: Cinder has had no '
                'heartbeat of it for longer than service_down_time.')
    outcome = Outcome.UNCHANGED
    remedy = _('Start the service, or check the clock of its node.')


class VolumeIsMoving(LocalCloneError):
    """What was asked for has to wait until a move has ended.

    :param what: what can't be done with the volume: "extended", say
    """

    problem = _('Volume %(volume)s can\'t be %(what)s while it is being moved '
                '(%(phase)s).')
    outcome = Outcome.UNCHANGED
    remedy = _('try again when the move has ended.')
    user_message = InvalidTransition.user_message


class LongerThanRecorded(LocalCloneError):
    """A volume of which users may have written more than its row says.

    An extension has failed after its LV, or its handle, had grown. A copy of
    as much as the row says would cut off the rest.

    :param found: GiB that users may have seen
    :param size: GiB, as the row says
    :param kept: GiB that would be left
    """

    problem = _('Volume %(volume)s has %(found)s GiB on %(host)s and %(size)s '
                'GiB in Cinder\'s database: an extension has failed. Its data '
                'beyond %(kept)s GiB would be lost.')
    outcome = Outcome.UNCHANGED
    remedy = _('Extend the volume to %(found)s GiB or more, and repeat the '
               'request.')
    user_message = owner_reads('EXTEND_AGAIN', 'LC47', _(
        'An earlier extension of the volume has failed. Ask an administrator '
        'to reset the status of the volume, extend it again, and repeat the '
        'request.'))


class NoSpaceToExtend(LocalCloneError):
    """What a volume is to be extended in is full."""

    problem = _('%(host)s lacks space to extend volume %(volume)s: '
                '%(reason)s.')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('NO_SPACE_TO_EXTEND', 'LC18', _(
        'The host that the volume is on has not enough free storage to extend '
        'it; the volume is unchanged.'))


class NoFreeSpace(LocalCloneError):
    """The destination of a move is too full."""

    problem = _('%(host)s has not enough free space for a volume of %(size)s '
                'GiB: %(reason)s.')
    outcome = Outcome.NOT_CREATED
    user_message = owner_reads('NO_FREE_SPACE', 'LC03', _(
        'The host that was to take the volume has not enough free storage. No '
        'data was changed.'))


class PoolDoesNotZero(LocalCloneError):
    """New volumes of a thin pool would have the bytes of deleted ones."""

    problem = _('Thin pool %(pool)s on %(host)s does not zero new blocks: the '
                'volume would show data of deleted volumes.')
    outcome = Outcome.NOT_CREATED
    remedy = _('Run "lvchange -Zy %(pool)s" on that host.')
    user_message = owner_reads('NOT_READY', 'LC04', _(
        'The host that was to take the volume is not able to do so at '
        'present. No data was changed.'))


class NotReady(LocalCloneError):
    """The destination of a move lacks something."""

    problem = _('%(host)s can\'t take the volume: %(reason)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Run "cinder-localclone doctor" on that host.')
    user_message = PoolDoesNotZero.user_message


class SourceBusy(LocalCloneError):
    """Something on the source still uses the volume."""

    problem = _('Volume %(volume)s is still open on %(host)s (open count of '
                '%(device)s: %(count)s).')
    outcome = Outcome.UNCHANGED
    remedy = _('Close the volume on that host, and try again.')
    user_message = owner_reads('SOURCE_BUSY', 'LC05', _(
        'The volume is still in use on the host it was attached to.'))


class DestinationWritten(LocalCloneError):
    """Rolling a live move back would lose data."""

    problem = _('The live move of volume %(volume)s can\'t be rolled back: '
                'the volume was already written on %(host)s (%(regions)s '
                'regions), and these writes would be lost.')
    outcome = Outcome.UNCHANGED
    remedy = _('If the instance runs on %(host)s, close the volume on the '
               'source, then run "cinder-localclone resume".')
    user_message = owner_reads('DESTINATION_WRITTEN', 'LC16', _(
        'The volume cannot go back to the host that it comes from: it was '
        'already written on the new one.'))


class CloneFailed(LocalCloneError):
    """The kernel has stopped a clone."""

    problem = _('The clone of volume %(volume)s on %(host)s is in mode '
                '"%(mode)s": its metadata or its disk failed, so it is '
                'unknown which regions were written.')
    outcome = Outcome.UNCHANGED
    remedy = _('Repair the disk and stop the instance; the volume service '
               'then rebuilds the clone.')
    user_message = owner_reads('CLONE_FAILED', 'LC15', _(
        'The storage of the host failed while the volume was being copied to '
        'it; an administrator has to repair it.'))


class WrongSource(LocalCloneError):
    """A login gave another disk than the source of the move."""

    problem = _('%(iqn)s exports another disk (%(device)s) than the expected '
                'one%(of_volume)s: %(reason)s.')
    outcome = Outcome.NOT_USED
    remedy = _('Check which targets export that name.')
    user_message = owner_reads('WRONG_SOURCE', 'LC06', _(
        'The disk that was offered to the host is not that of this volume. '
        'The host did not use it, and the volume is unchanged.'))


class MissingData(LocalCloneError):
    """Something that must exist is gone; it is never created again."""

    problem = _('%(what)s of volume %(volume)s is missing on %(host)s. The '
                'driver did not create an empty replacement.')
    remedy = _('See "Losing a disk" in the administration guide.')
    user_message = owner_reads('DATA_MISSING', 'LC08', _(
        'The data of the volume was not found on its host.'))


class Foreign(LocalCloneError):
    """The privileged layer was asked to change what is not the driver's."""

    problem = _('"%(name)s" is not one of the driver\'s own names.')
    outcome = Outcome.NOT_DONE
    remedy = _('This is a defect of the driver.')


class ForeignGroup(LocalCloneError):
    """The privileged layer was asked for LVs of another volume group."""

    problem = _('No backend of this driver has the volume group %(group)s in '
                'the configuration of the privileged process (%(files)s).')
    outcome = Outcome.NOT_DONE
    remedy = _('If helper_command is set, it must name the configuration '
               'files of the service.')


class WrongDevice(LocalCloneError):
    """A path does not lead to the device that it names."""

    problem = _('%(path)s does not lead to the device of that name but to '
                '%(found)s.')
    outcome = Outcome.UNCHANGED
    remedy = _('Find out which program changed the path ("ls -l %(path)s", '
               '"dmsetup info -c").')
    user_message = MissingData.user_message


class MetadataTooSmall(LocalCloneError):
    """The metadata LV of a move was shrunk."""

    problem = _('%(device)s, which records the copied regions of volume '
                '%(volume)s, has %(found)s bytes but needs %(needed)s: the '
                'kernel crashes when this metadata is full.')
    outcome = Outcome.NOT_AVAILABLE
    remedy = _('Extend the LV ("lvextend -L %(needed)sb %(device)s"), then '
               'run "cinder-localclone repair".')
    user_message = owner_reads('METADATA_TOO_SMALL', 'LC13', _(
        'The volume is being copied between hosts, and the storage that '
        'records the progress is too small. Nothing is lost; an administrator '
        'has to extend it.'))


class MetadataLost(LocalCloneError):
    """The metadata LV of a committed move was overwritten."""

    problem = _('%(device)s, which records the copied regions of volume '
                '%(volume)s, is blank: another program has overwritten it. '
                'Older data would hide what was written since the move '
                'began.')
    outcome = Outcome.NOT_AVAILABLE
    remedy = _('See "Losing a disk" in the administration guide.')
    user_message = owner_reads('METADATA_LOST', 'LC14', _(
        'The record of which parts of the volume have been copied is lost; an '
        'administrator has to recover the data.'))


class CommandFailed(LocalCloneError):
    """A command's exit code says that it failed."""

    problem = _('"%(command)s" failed with exit code %(code)s: %(stderr)s')


class CommandTimeout(LocalCloneError):
    """A command was killed at its time limit."""

    problem = _('"%(command)s" did not end within %(seconds)s s and was '
                'killed.')
    user_message = owner_reads('TIMEOUT', 'LC09', _(
        'The storage of a host did not answer in time. Try again later.'))


class Busy(LocalCloneError):
    """Something is locked by other work on this node.

    :param what: such as "Volume <id>"
    """

    problem = _('%(what)s is locked by another request on %(host)s, also '
                'after %(seconds)s s.')
    outcome = Outcome.NOT_COMPLETED
    remedy = _('try again.')
    user_message = InvalidTransition.user_message


class ExportFailed(LocalCloneError):
    """The kernel refused a change of the iSCSI target."""

    problem = _('The iSCSI target of this node could not be changed: '
                '%(reason)s. The next periodic check repairs the exports.')
    remedy = _('If this error remains, run "cinder-localclone doctor" on this '
               'node.')


class LoginFailed(LocalCloneError):
    """A login to the source gave no disk."""

    problem = _('The iSCSI login to %(iqn)s at %(portal)s gave no disk: '
                '%(reason)s.')
    remedy = _('See the log of this node\'s cinder-volume, and the kernel log '
               'of the source.')
    user_message = owner_reads('SOURCE_UNREACHABLE', 'LC12', _(
        'The host could not reach the data of the volume on the host that it '
        'comes from; try again later.'))


class SourceUnreachable(LocalCloneError):
    """The source of a move accepts no iSCSI connection."""

    problem = _('The iSCSI portal %(portal)s of the source accepts no '
                'connection: %(reason)s. Until the portal answers, this node '
                'can read only data that was already copied.')
    remedy = _('Check that the source node is up and that this node can reach '
               'it.')
    user_message = LoginFailed.user_message


class TargetTimeout(CommandTimeout):
    """A change of this node's iSCSI target hangs in the kernel."""

    problem = _('The iSCSI target of this node could not be changed within '
                '%(seconds)s s: this change, or an earlier one, hangs in the '
                'kernel and can\'t be killed. Volumes that are not exported '
                'are not affected.')
    remedy = _('See the kernel log of this node.')


class TargetHangs(TargetTimeout):
    """The same, known from an earlier change: this one was not begun."""

    problem = _('The iSCSI target of this node was not changed: an earlier '
                'change of %(target)s has hung in the kernel since %(since)s '
                'and can\'t be killed. It ends when the device that it waits '
                'for answers or fails.')
    remedy = _('See the kernel log of this node for the device.')


class CannotDelete(LocalCloneError, exception.VolumeIsBusy):
    """A volume that can't be deleted now, and has all that it had.

    Its base makes Cinder's manager take the volume for available again.
    """

    problem = _('Volume %(volume)s can\'t be deleted now: %(reason)s')
    outcome = Outcome.NOT_REMOVED
    remedy = _('Delete the volume, or its group, again.')
    user_message = owner_reads('NOT_DELETED', 'LC44', _(
        'The volume is in use or is being moved, or its storage did not '
        'answer in time. None of its data was removed: delete the volume, or '
        'its group, again.'))


class HalfDeleted(LocalCloneError):
    """The same of one that has not, or of which that is not sure."""

    problem = _('Volume %(volume)s was not deleted completely: %(reason)s')
    outcome = Outcome.HALF_REMOVED
    remedy = _('Delete it again as an administrator (openstack volume delete '
               '--force); if the volume is in a group, the group can be '
               'deleted again.')
    user_message = owner_reads('HALF_DELETED', 'LC45', _(
        'The volume could not be deleted completely and can\'t be used any '
        'more. Ask an administrator to delete it again; if the volume is in a '
        'group, you can delete the group again.'))


def cause(error: Exception) -> Exception:
    """What the owner of a volume that was not deleted is told.

    What has become of it, whatever the reason was: other errors would say
    that it is as it was, or to try again, which he can't.
    """
    if isinstance(error, (CannotDelete, HalfDeleted)):
        return error
    return LocalCloneError(str(error))


class CannotManage(LocalCloneError,
                   exception.ManageExistingInvalidReference):
    """An LV that somebody has named, and that is not to be managed."""

    problem = _('Logical volume %(lv)s on %(host)s can\'t be managed: '
                '%(reason)s.')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('NOT_MANAGED', 'LC30', _(
        'The named logical volume could not be managed by this storage; it is '
        'unchanged.'))


class CannotUnmanage(LocalCloneError, exception.VolumeIsBusy):
    """A volume that has to stay managed for now.

    Its base makes Cinder's manager take the volume for available again.
    """

    problem = _('Volume %(volume)s can\'t be unmanaged: %(reason)s.')
    outcome = Outcome.UNCHANGED
    user_message = owner_reads('NOT_UNMANAGED', 'LC31', _(
        'The volume is still managed: it is in use, being moved, encrypted or '
        'incomplete, or its storage failed.'))


class SnapshotInUse(LocalCloneError, exception.SnapshotIsBusy):
    """The same, of a snapshot."""

    problem = _('Snapshot %(snapshot)s can\'t be unmanaged: a host is reading '
                'it.')
    outcome = Outcome.UNCHANGED
    remedy = _('try again when the read has ended.')


class TooFewDisks(LocalCloneError):
    """A volume can't have each of its stripes on another disk."""

    problem = _('Volume group %(group)s on %(host)s is on %(disks)s disks, '
                'and localclone_thick_stripes is %(stripes)s.')
    outcome = Outcome.NOT_CREATED
    remedy = _('Add disks to it (vgextend), or correct that option.')
    user_message = PoolDoesNotZero.user_message


class OddDisks(LocalCloneError):
    """The logical block size of a node's disks can't be told."""

    problem = _('The sector size of the disks of volume group %(group)s on '
                '%(host)s can\'t be read.')
    outcome = Outcome.UNCHANGED
    remedy = _('See "vgs -o pv_name %(group)s" there.')
    user_message = PoolDoesNotZero.user_message


class DiskMissing(LocalCloneError):
    """LVM changes nothing in a group that lacks a disk."""

    problem = _('Volume group %(group)s on %(host)s lacks %(count)s of its '
                'disks: LVM creates and changes nothing in it.')
    remedy = _('Bring the disk back (vgck %(group)s shows which), or give it '
               'up with vgreduce --removemissing %(group)s.')
    user_message = PoolDoesNotZero.user_message


class NoArchive(LocalCloneError):
    """LVM changes nothing while it can't archive a group's metadata."""

    problem = _('LVM on %(host)s can\'t write its archive: %(directory)s has '
                '%(room)s KiB of free space. LVM creates and changes nothing '
                'until more space is free there.')
    remedy = _('Remove old files from that directory.')
    user_message = PoolDoesNotZero.user_message


class AlreadyThere(LocalCloneError,
                   exception.MetadataUpdateFailure):
    """An LV where a new one is to be, which somebody may have been given.

    Cinder is to try no other node: it would take its home off a volume.
    """

    problem = _('Volume %(volume)s was not created: LV %(lv)s already exists '
                'on %(host)s and may contain data of another user.')
    outcome = Outcome.UNCHANGED
    remedy = _('Create another volume.')
    user_message = NotCreated.user_message


class SourceWritten(LocalCloneError):
    """What was a hole of the source may be none any more."""

    problem = _('Volume %(volume)s was written on %(host)s after its handle '
                'was closed, while its move began.')
    outcome = Outcome.UNCHANGED
    remedy = _('Close the volume on that host, and try again.')
    user_message = SourceBusy.user_message


class PoolFails(LocalCloneError):
    """A thin pool that can't note what it maps."""

    problem = _('Thin pool %(pool)s of %(host)s is in mode "%(mode)s": it '
                'can\'t write its metadata, and what was written to it last '
                'may be lost.')
    remedy = _('Stop the guests there, reboot the node, and extend the '
               'pool\'s metadata LV if it is full.')


class PoolOutOfSpace(LocalCloneError):
    """A thin pool without room for what is to be written there."""

    problem = _('Thin pool %(pool)s of %(host)s is full: extend it, or delete '
                'what is not needed.')


class SourceUnread(LocalCloneError):
    """Something can't be read at the source."""

    problem = _('%(disk)s can\'t be read at byte %(first)d: %(reason)s')


class TakesLong(LocalCloneError):
    """Something goes on, but not at once."""

    problem = _('the operation takes longer than %(seconds)d s')


class Lacking(LocalCloneError):
    """A copy that may lack something."""

    problem = _('The copy of volume %(volume)s on %(host)s may lack data that '
                'its source on %(source)s has: a thin pool lost data, and it '
                'is unknown whether all of it was copied again.')
    outcome = Outcome.SOURCE_KEPT
    remedy = _('Check the file system, and restore damaged files. Then end '
               'the copy as it is: %(end)s')


class NotAllCopied(LocalCloneError):
    """The source has what its copy has not, although that was copied."""

    problem = _('%(size)d KiB of volume %(volume)s that its source has are '
                'still missing on %(host)s, although they were copied again.')
    outcome = Outcome.SOURCE_KEPT
    remedy = _('See dmesg for errors of the thin pool. To end the copy as it '
               'is: %(end)s')


class NotRefilled(LocalCloneError):
    """What was lost of a copy can't be copied again now."""

    problem = _('The thin pool of %(host)s has lost data of volume '
                '%(volume)s, and not all of it could be copied again from '
                '%(source)s: %(reason)s.')
    outcome = Outcome.SOURCE_KEPT
    remedy = _('The driver tries again. If every try fails, check the file '
               'system, restore damaged files, and end the copy as it is: '
               '%(end)s')


class Forgotten(LocalCloneError):
    """A source that can't be asked any more."""

    problem = _('the source node %(host)s was forgotten')
