# SPDX-License-Identifier: Apache-2.0
"""The table of all LVM tags of the driver. Pure.

A node keeps facts in tags that it needs without Cinder's database, above all
at boot. A program with write access to the disk can set them, so a key, a
cipher or another volume's name is believed only if Cinder's row, or the key
manager, says the same.

A fact is a tag with a value, a flag is a tag without. :mod:`.names` builds and
parses tags of LVs by this table, and refuses an unknown fact.
:mod:`.header_notes` does so for the tags of the volume group. The
contributor's page prints the table. A tag cleared by no module goes with its
LV. Before the driver leaves an LV to another owner, or overwrites and removes
an LV, it takes its own tags (:func:`.names.own_tags`) off the LV. Only "shown"
stays.
"""

import dataclasses
import enum
import typing

PREFIX = 'localclone.'


class On(str, enum.Enum):
    """The kind of LVM object with a tag."""

    VOLUME = 'LV of a volume'
    SNAPSHOT = 'LV of a snapshot'
    BOTH = 'LV of a volume or snapshot'
    METADATA = 'metadata LV of a move'
    VOLUME_OR_METADATA = 'LV of a volume; metadata LV of a move'
    GROUP = 'volume group'


@dataclasses.dataclass(frozen=True)
class Tag:
    """A flag, or the beginning of a tag with a value.

    :param name: the text after the prefix; for a tag of the volume group only
        its constant beginning. A flag may have ``=`` in its name
    :param meaning: the statement that the tag makes
    :param set_by: modules of the driver, as ``package.module``
    :param cleared_by: likewise; none: the tag goes with its LV
    :param value: meaning of the text after the name; '': it is a flag
    """

    name: str
    on: On
    meaning: str
    set_by: tuple[str, ...]
    cleared_by: tuple[str, ...] = ()
    value: str = ''

    @property
    def text(self) -> str:
        """The whole tag of a flag, or the beginning of a tag with a value."""
        return PREFIX + self.name

    def with_value(self, value: object) -> str:
        """Return the tag of a fact: ``localclone.<name>=<value>``.

        Not for tags of the volume group.

        :param value: letters, digits and ``_+.-/=!:#&``; '' for the beginning
            of all tags with this fact
        """
        return '%s=%s' % (self.text, value)


#: Set by the operator, with lvchange.
OPERATOR = 'operator'

# -- facts: the volume or snapshot of an LV, and its properties

VOLUME = Tag(
    'volume', On.VOLUME_OR_METADATA,
    'Volume of the data in the LV, or of the move. A boot creates the handle, '
    'or the clone, by this tag.',
    ('storage.logical_volumes', 'storage.clones', 'volumes.manage'),
    ('storage.logical_volumes',), 'volume id')
SNAPSHOT = Tag(
    'snapshot', On.SNAPSHOT, 'Snapshot of the data in the LV.',
    ('storage.logical_volumes', 'volumes.manage_snapshots'),
    ('storage.logical_volumes',), 'snapshot id')
OF = Tag(
    'of', On.SNAPSHOT, 'Volume of the snapshot.',
    ('storage.logical_volumes', 'volumes.manage_snapshots'),
    ('storage.logical_volumes',), 'volume id')
ON = Tag(
    'on', On.SNAPSHOT,
    'Node of the snapshot. The row of the snapshot names the same node; '
    'otherwise the LV is left from a failed request. A renamed node finds its '
    'snapshots by this tag.',
    ('storage.logical_volumes', 'volumes.manage_snapshots',
     'volumes.snapshots'),
    ('volumes.snapshots',), 'digest of a service host')
WAS = Tag(
    'was', On.BOTH, 'Name of the LV before it was managed.',
    ('volumes.manage',), ('storage.logical_volumes',), 'LV name')
EXTRA = Tag(
    'extra', On.VOLUME_OR_METADATA,
    'Bytes of the backing device beyond the volume\'s size: the header of its '
    'encryption.',
    ('storage.logical_volumes', 'storage.clones'),
    ('storage.logical_volumes',), 'bytes')
SHOWN = Tag(
    'shown', On.VOLUME,
    'Only this length from the beginning is zeroed. The rest of the LV may '
    'have deleted data of other users. The tag stays true, and stays, when '
    'the driver leaves the LV.',
    ('storage.logical_volumes',), ('storage.logical_volumes',), 'bytes')
GIVEN = Tag(
    'given', On.VOLUME,
    'Length of the LV that users have seen, at most: during an extension, '
    'after a failed extension, or with large extents.',
    ('storage.logical_volumes',), ('storage.logical_volumes',), 'bytes')
GUARDED = Tag(
    'guarded', On.VOLUME,
    'Nova encrypts the volume and a header guard is above its handle, also '
    'after a boot.',
    ('encryption.devices',), ('encryption.devices',),
    'sectors of the header')

# -- facts of a move, on its metadata LV

GEOMETRY = Tag(
    'geometry', On.METADATA, 'With what the clone was created.',
    ('storage.clones',), (), 'Geometry of the clone at its creation.')
SOURCE = Tag(
    'source', On.METADATA, 'iSCSI name of the source\'s export.',
    ('storage.clones',), (), 'iSCSI name')
COPIED = Tag(
    'copied', On.METADATA,
    'Size of the copy; the volume may have been extended since.',
    ('storage.clones',), (), 'GiB')

# -- facts of a header

KEY = Tag(
    'key', On.VOLUME,
    'Secret of the volume, for a boot: it has no row.',
    ('volumes.create', 'encryption.devices', 'encryption.headers',
     'encryption.rotate'),
    ('encryption.devices',), 'reference in the key manager')
LUKS = Tag(
    'luks', On.VOLUME, 'UUID in the header of the volume.',
    ('volumes.create', 'encryption.devices', 'encryption.headers',
     'encryption.rotate'),
    ('encryption.devices', 'encryption.headers'), 'UUID')

# -- flags of an LV that is no volume at rest

UNCOMMITTED = Tag(
    'uncommitted', On.VOLUME,
    'Cinder has not taken the LV, or has taken another LV for the volume: no '
    'boot uses the LV, and a sweep removes it unless the row names it.',
    ('storage.logical_volumes', 'volumes.revert', 'volumes.migrate'),
    ('volumes.uncommitted', 'volumes.migrate'))
BACKEND = Tag(
    'backend', On.VOLUME,
    'Backend that has created an uncommitted LV and may remove it: another '
    'backend in the same group has other locks. Set and cleared with the '
    'flag.',
    ('storage.logical_volumes',), ('storage.logical_volumes',),
    'digest of a backend section')
AWAY = Tag(
    'away', On.VOLUME,
    'The volume is elsewhere: it has moved, or this node has it by a remote '
    'attachment. No boot uses the LV.',
    ('moves.source', 'moves.remote_attachment'))
DELETING = Tag(
    'deleting', On.VOLUME,
    'A delete has begun to remove data: the volume never becomes available '
    'again.',
    ('volumes.delete',))

# -- flags of a move

DEFERRED = Tag(
    'deferred', On.METADATA,
    'The volume is used through its old home: until the commit nothing may be '
    'written to the clone, and no boot uses it.',
    ('storage.clones',), ('storage.clones',))
SWAPPING = Tag(
    'swapping', On.METADATA,
    'The deferred move is committed, but the handle is not on the clone yet, '
    'or the last writes at the old home are not on its disk yet.',
    ('storage.clones',), ('storage.clones',))
UNMAPPED = Tag(
    'unmapped', On.METADATA,
    'The holes of the source are unknown: a guest used it when the clone was '
    'built.',
    ('storage.clones',), ('moves.holes',))
LACKING = Tag(
    'lacking', On.VOLUME,
    'The copy may lack data of its source: the source is kept.',
    ('moves.refill',), ('moves.refill',))
ACCEPTED = Tag(
    'accepted', On.VOLUME,
    'The copy may end without the missing data.', (OPERATOR,))

# -- flags of an encrypted volume

OPENED = Tag(
    'opened', On.VOLUME,
    'The node has the volume open, or is opening it: a boot opens it again.',
    ('encryption.devices',), ('encryption.devices',))
FRESH = Tag(
    'fresh', On.VOLUME,
    'Only the driver has opened the volume: unwritten ranges read as noise, '
    'not as zeros.',
    ('volumes.create',), ('volumes.create', 'encryption.devices'))
OUTDATED = Tag(
    'backups=outdated', On.VOLUME,
    'Backups of the header may have a removed key.',
    ('encryption.rotate', 'moves.destination'), ('encryption.rotate',))
REENCRYPTED = Tag(
    'reencrypted', On.VOLUME,
    'A re-encryption has begun, or the work after its end is not done. All of '
    'a thin LV counts as used.',
    ('encryption.reencrypt',), ('encryption.reencrypt',))
PAUSED = Tag(
    'paused=operator', On.VOLUME,
    'An operator has paused the re-encryption.',
    ('encryption.reencrypt',), ('encryption.reencrypt',))
ZONE = Tag(
    'zone', On.VOLUME,
    'Size of the part re-encrypted at a time, chosen by an operator.',
    ('encryption.reencrypt',), ('encryption.reencrypt',), 'MiB')

# -- tags of the volume group

REMOTE = Tag(
    'remote-', On.GROUP,
    'Header of a remotely attached volume: there is no LV for the facts luks '
    'and key.',
    ('encryption.devices',),
    ('encryption.devices', 'moves.remote_attachment'),
    'volume id = UUID of the header : reference of the secret')
KEEPS = Tag(
    'keeps-', On.GROUP,
    'Present or former directory of a backend for header backups and sealed '
    'keys: files left there can open volumes.',
    ('storage.cryptsetup',), ('storage.cryptsetup',),
    'backend section = directory')

TABLE = tuple(each for each in list(globals().values())
              if isinstance(each, Tag))
#: The names of facts, ``localclone.<name>=<value>``: mypy refuses any other
#: name of a fact.
Fact: typing.TypeAlias = typing.Literal[
    'volume', 'snapshot', 'of', 'on', 'was', 'extra', 'shown', 'given',
    'guarded', 'geometry', 'source', 'copied', 'key', 'luks', 'backend',
    'zone']
#: Facts of LVs by name. A tag of the volume group is not among them: a part of
#: its value stands before the ``=``.
FACTS: dict[str, Tag] = {each.name: each for each in TABLE
                         if each.value and each.on is not On.GROUP}
