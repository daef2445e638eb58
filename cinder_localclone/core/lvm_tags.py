# SPDX-License-Identifier: Apache-2.0
"""The table of all LVM tags that the driver sets or reads. Pure.

A node keeps in tags what has to be known without Cinder's database, at boot
above all. A program that can write the disk can set them, so a key, a cipher
or another volume's name is believed only if Cinder's row, or the key manager,
says the same.

:mod:`.names` builds and parses tags by this table, and refuses a fact that it
does not have. The contributor's page prints it. A tag that no module clears
goes with its LV. The driver takes all its tags but "shown" off an LV that it
leaves to another owner, or is about to overwrite and remove
(:func:`.names.own_tags`).
"""

import dataclasses
import enum
import typing

PREFIX = 'localclone.'


class On(str, enum.Enum):
    """What has a tag."""

    VOLUME = 'LV of a volume'
    SNAPSHOT = 'LV of a snapshot'
    BOTH = 'LV of a volume or snapshot'
    METADATA = 'metadata LV of a move'
    VOLUME_OR_METADATA = 'LV of a volume; metadata LV of a move'
    GROUP = 'volume group'


@dataclasses.dataclass(frozen=True)
class Tag:
    """A tag, or the beginning of one.

    :param name: what follows the prefix
    :param meaning: what holds while the tag is there
    :param set_by: modules of the driver, as ``package.module``
    :param cleared_by: likewise; none: it goes with its LV
    :param value: what follows the name; '': nothing does
    """

    name: str
    on: On
    meaning: str
    set_by: tuple[str, ...]
    cleared_by: tuple[str, ...] = ()
    value: str = ''

    @property
    def text(self) -> str:
        """The tag of a flag; the beginning of one with a value."""
        return PREFIX + self.name

    def of(self, value: object) -> str:
        """Return the tag with a value.

        A value may have letters, digits and ``_+.-/=!:#&``.
        """
        return '%s=%s' % (self.text, value)


#: Set by the operator, with lvchange.
OPERATOR = 'operator'

# -- facts: whose an LV is, and what it has

VOLUME = Tag(
    'volume', On.VOLUME_OR_METADATA,
    'Volume whose data is in the LV, or whose move the metadata is of. A boot '
    'makes the handle, or the clone, by it.',
    ('storage.logical_volumes', 'storage.clones', 'volumes.manage'),
    ('storage.logical_volumes',), 'volume id')
SNAPSHOT = Tag(
    'snapshot', On.SNAPSHOT, 'Snapshot whose data is in the LV.',
    ('storage.logical_volumes', 'volumes.manage_snapshots'),
    ('storage.logical_volumes',), 'snapshot id')
OF = Tag(
    'of', On.SNAPSHOT, 'Volume that the snapshot was taken of.',
    ('storage.logical_volumes', 'volumes.manage_snapshots'),
    ('storage.logical_volumes',), 'volume id')
ON = Tag(
    'on', On.SNAPSHOT,
    'Node that has the snapshot. The row of the snapshot names the same one, '
    'else the LV is of a failed request. A node that was renamed finds its '
    'snapshots by it.',
    ('storage.logical_volumes', 'volumes.manage_snapshots',
     'volumes.snapshots'),
    ('volumes.snapshots',), 'digest of a service host')
WAS = Tag(
    'was', On.BOTH, 'Name of the LV before it was managed.',
    ('volumes.manage',), ('storage.logical_volumes',), 'LV name')
EXTRA = Tag(
    'extra', On.VOLUME_OR_METADATA,
    'By how much the volume\'s backing device is longer than the volume: the '
    'header of its encryption.',
    ('storage.logical_volumes', 'storage.clones'),
    ('storage.logical_volumes',), 'bytes')
SHOWN = Tag(
    'shown', On.VOLUME,
    'No more than this, from the beginning, is zeroed: behind it may be '
    'deleted data of others. It stays true, and stays, when the driver leaves '
    'the LV.',
    ('storage.logical_volumes',), ('storage.logical_volumes',), 'bytes')
GIVEN = Tag(
    'given', On.VOLUME,
    'Users have seen no more than this of a longer LV: while it is extended, '
    'after an extension has failed, or where extents are large.',
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
    ('storage.clones',), (), 'region size in sectors, threshold, batch')
SOURCE = Tag(
    'source', On.METADATA, 'Name under which the source is exported.',
    ('storage.clones',), (), 'iSCSI name')
COPIED = Tag(
    'copied', On.METADATA,
    'How much of the volume is copied; it may have been extended since.',
    ('storage.clones',), (), 'GiB')

# -- facts of a header

KEY = Tag(
    'key', On.VOLUME,
    'Secret that opens the volume, for a boot, which has no row to ask.',
    ('volumes.create', 'encryption.devices', 'encryption.headers',
     'encryption.rotate'),
    ('encryption.devices',), 'reference in the key manager')
LUKS = Tag(
    'luks', On.VOLUME, 'UUID in the header of the volume.',
    ('volumes.create', 'encryption.devices', 'encryption.headers',
     'encryption.rotate'),
    ('encryption.devices', 'encryption.headers'), 'UUID')

# -- flags of an LV that is not, or not any more, a volume's at rest

UNCOMMITTED = Tag(
    'uncommitted', On.VOLUME,
    'Cinder has not taken the volume, or has another LV for it: no boot '
    'gives it out, and a sweep removes it unless the row names it.',
    ('storage.logical_volumes', 'volumes.revert', 'volumes.migrate'),
    ('volumes.uncommitted', 'volumes.migrate'))
BACKEND = Tag(
    'backend', On.VOLUME,
    'Backend that has made an uncommitted LV and may remove it: another one '
    'in the same group has other locks. Set and cleared with the flag.',
    ('storage.logical_volumes',), ('storage.logical_volumes',),
    'digest of a backend section')
AWAY = Tag(
    'away', On.VOLUME,
    'The volume is elsewhere: it has moved, or this node has it by a remote '
    'attachment. A boot does not give the LV out.',
    ('moves.source', 'moves.remote_attachment'))
DELETING = Tag(
    'deleting', On.VOLUME,
    'A delete has begun to remove something: the volume is not called '
    'available again.',
    ('volumes.delete',))

# -- flags of a move

DEFERRED = Tag(
    'deferred', On.METADATA,
    'The volume is used through its old home: until the commit nothing may '
    'be written to the clone, and no boot uses it.',
    ('storage.clones',), ('storage.clones',))
SWAPPING = Tag(
    'swapping', On.METADATA,
    'Such a move is committed, but the handle is not on the clone yet, or '
    'what was written at the old home is not stable there.',
    ('storage.clones',), ('storage.clones',))
UNMAPPED = Tag(
    'unmapped', On.METADATA,
    'Nobody has looked for what was never written of the source: a guest '
    'used it when the clone was built.',
    ('storage.clones',), ('moves.holes',))
LACKING = Tag(
    'lacking', On.VOLUME,
    'The copy may lack data that its source has: the source is kept.',
    ('moves.refill',), ('moves.refill',))
ACCEPTED = Tag(
    'accepted', On.VOLUME,
    'Such a copy may end as it is.', (OPERATOR,))

# -- flags of an encrypted volume

OPENED = Tag(
    'opened', On.VOLUME,
    'The node has the volume open, or means to: a boot opens it again.',
    ('encryption.devices',), ('encryption.devices',))
FRESH = Tag(
    'fresh', On.VOLUME,
    'Only the driver has opened the volume: what was not written to it reads '
    'as noise, not as zeros.',
    ('volumes.create',), ('volumes.create', 'encryption.devices'))
OUTDATED = Tag(
    'backups=outdated', On.VOLUME,
    'Backups of the header may have a key that the header has no more.',
    ('encryption.rotate', 'moves.destination'), ('encryption.rotate',))
REENCRYPTED = Tag(
    'reencrypted', On.VOLUME,
    'A re-encryption has begun, or what comes after its end is not done. All '
    'of a thin LV counts as used.',
    ('encryption.reencrypt',), ('encryption.reencrypt',))
PAUSED = Tag(
    'paused=operator', On.VOLUME,
    'An operator has paused the re-encryption.',
    ('encryption.reencrypt',), ('encryption.reencrypt',))
ZONE = Tag(
    'zone', On.VOLUME,
    'An operator has chosen how much of the volume is re-encrypted at a time.',
    ('encryption.reencrypt',), ('encryption.reencrypt',), 'MiB')

# -- tags of the volume group

REMOTE = Tag(
    'remote-', On.GROUP,
    'What is noted of the header of a volume that the node has by a remote '
    'attachment: there is no LV to have the facts luks and key.',
    ('encryption.devices',),
    ('encryption.devices', 'moves.remote_attachment'),
    'volume id = UUID of the header : reference of the secret')
KEEPS = Tag(
    'keeps-', On.GROUP,
    'Where a backend keeps backups of headers and sealed keys, or has before: '
    'what is left there can open volumes.',
    ('storage.cryptsetup',), ('storage.cryptsetup',),
    'backend section = directory')

TABLE = tuple(each for each in list(globals().values())
              if isinstance(each, Tag))
#: The names of facts, ``localclone.<name>=<value>``, for mypy: it takes no
#: other name where a fact is read.
Fact: typing.TypeAlias = typing.Literal[
    'volume', 'snapshot', 'of', 'on', 'was', 'extra', 'shown', 'given',
    'guarded', 'geometry', 'source', 'copied', 'key', 'luks', 'backend',
    'zone']
#: They, by name.
FACTS: dict[str, Tag] = {each.name: each for each in TABLE
                         if each.value and each.on is not On.GROUP}
