# SPDX-License-Identifier: Apache-2.0
"""Volumes that are made of an image: born on the node that has it.

No byte is copied. The volume's row says that this node is its home before
anything is made; whatever node Cinder has asked. Only locks of that node are
held. A birth that fails gives the row back to the node that Cinder has asked.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib

from cinder.volume import volume_utils
from oslo_log import log as logging

from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.core import rpc
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import rotate
from cinder_localclone.moves import source as moving
from cinder_localclone.volumes import snapshots
from cinder_localclone.volumes import uncommitted

LOG = logging.getLogger(__name__)


# -- at the node that Cinder has asked

def from_snapshot(node: Node, volume_id: str, snapshot_id: str) -> None:
    """Make a volume of a snapshot, on the node that has that.

    :raises ForeignImage: if no node of this backend has it
    :raises LocalCloneError: if it could not be made
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    host = snapshot.node if snapshot else ''
    _check_backend(node, 'snapshot ' + snapshot_id, host)

    def make(destination: str) -> None:
        rpc.at(host, make_from_snapshot, node, volume_id, snapshot_id,
               destination)
    _bear(node, _volume(node, volume_id), host, make)


def from_volume(reconciler: snapshots.Reconciler, volume_id: str,
                source_id: str, seconds: float) -> None:
    """Make a volume of another, at that one's home.

    One that Cinder has cached of an image is only taken if that takes no
    time: else Cinder downloads the image.

    :param seconds: to wait while the source is copied there, at most
    :raises ForeignImage: if it is not a volume of this backend
    :raises LocalCloneError: if it could not be made
    """
    node = reconciler.node
    volume = _volume(node, volume_id)
    cached = volume.source_volid != source_id and volume.use_quota

    def attempt() -> None:
        source = node.volumes.volume(source_id)
        if source is None:
            raise exceptions.TooLate(what='Volume ' + source_id)
        host = names.service_host(source.host)
        _check_backend(node, 'volume ' + source_id, host)
        if cached and _is_in_other_zone(node, volume, host):
            raise exceptions.ForeignImage(
                image='volume ' + source_id,
                reason='it is in another availability zone')
        snapshots.check_copied(node, source)

        def make(destination: str) -> None:
            rpc.at(host, make_from_volume, reconciler, volume_id, source_id,
                   destination)
        _bear(node, volume, host, make)
    snapshots.when_copied(0 if cached else seconds, attempt)


def _volume(node: Node, volume_id: str) -> objects.Volume:
    volume = node.volumes.volume(volume_id)
    if volume is None:
        raise exceptions.TooLate(what='Volume ' + volume_id)
    return volume


def _check_backend(node: Node, image: str, host: str) -> None:
    """:raises ForeignImage: if an image is not on a node of this backend"""
    if not names.same_backend(host, node.host):
        raise exceptions.ForeignImage(
            image=image, reason='it is on %s' % (
                host or 'no node of this backend'))


def _is_in_other_zone(node: Node, volume: objects.Volume, host: str
                      ) -> bool:
    zone = node.services.zone_of(host)
    return bool(zone and zone != volume.availability_zone)


def _bear(node: Node, volume: objects.Volume, host: str,
          make: Callable[[str], None]) -> None:
    """Give a volume its home, and have it made there.

    :param volume: as Cinder has asked for it
    :param host: service host of the node that has the image
    :param make: ``make(destination)`` makes it there
    """
    asked = volume.host
    home = volume_utils.append_host(
        host, volume_utils.extract_host(asked, 'pool'))
    destination = (node.host if _is_in_other_zone(node, volume, host)
                   else '')
    if home != asked:
        node.volumes.set_home(volume.id, asked, home)
    try:
        make(destination)
    except Exception:
        if home != asked:
            _give_back(node, volume.id, home, asked)
        raise


def _give_back(node: Node, volume_id: str, home: str, asked: str
               ) -> None:
    """Cinder may yet fill it with an image that it downloads."""
    try:
        node.volumes.set_home(volume_id, home, asked)
    except Exception as exc:  # must not hide why there is no volume
        LOG.warning('Volume %(volume)s was not created, but its row still '
                    'names %(host)s as its home: %(error)s',
                    {'volume': volume_id, 'host': home, 'error': exc})


# -- at the node that has the image

# What is made may have to move afterwards.
@rpc.method('create_from_snapshot', rpc.SNAPSHOT, times=2)
def make_from_snapshot(node: Node, volume_id: str, snapshot_id: str,
                       destination: str) -> None:
    """Make a volume of a snapshot that this node has.

    :param destination: service host that it moves to then; '': nowhere
    :raises MissingData: if this node does not have it
    :raises TooLate: if nobody waits for the volume any more
    :raises LocalCloneError: if LVM fails
    """
    with _uncommitted(node, volume_id, destination) as volume:
        with node.lock(snapshot_id):
            snapshot = snapshots.present(node, snapshot_id)
            encryption = rows.recorded(snapshot)
            _check_image(node, volume, 'snapshot ' + snapshot_id, encryption,
                         snapshot.size_gib)
            _make(node, volume, snapshot.lv, snapshot.size_bytes, encryption)


@rpc.method('create_from_volume', rpc.HOME, times=2, expected=(
    exceptions.BeingCopied,))
def make_from_volume(reconciler: snapshots.Reconciler, volume_id: str,
                     source_id: str, destination: str) -> None:
    """Make a volume of another whose home is this node.

    :param destination: as of :func:`make_from_snapshot`
    :raises BeingCopied: if not all of the other volume is here yet
    :raises LocalCloneError: as :func:`.snapshots.at_home`, and as
        :func:`make_from_snapshot`
    """
    node = reconciler.node
    with _uncommitted(node, volume_id, destination) as volume:
        with node.lock(source_id), devices.reencryption_paused(
                node, source_id):
            image = snapshots.at_home(node, source_id, reconciler.progress)
            encryption = rows.recorded(image)
            _check_image(node, volume, 'volume ' + source_id, encryption,
                         image.size)
            _make(node, volume, image.name, rows.backing_bytes(image),
                  encryption)


@contextlib.contextmanager
def _uncommitted(node: Node, volume_id: str, destination: str
                 ) -> Iterator[objects.Volume]:
    """A volume that somebody waits for; what is made of it moves then.

    The move has to wait for another node, so no image is locked any more.
    Nothing is left if any of this fails.

    :param destination: service host that it moves to; '': nowhere
    """
    snapshots.check_pool(node)
    with node.lock(volume_id):
        volume = uncommitted.being_created(node, volume_id)
        # Of one in "downloading" Cinder would change the key itself.
        if volume.status != 'creating':
            raise exceptions.TooLate(what='Volume ' + volume_id)
        try:
            yield volume
            rotate.give_own_key(node, _volume(node, volume_id))
            if destination:
                moving.move_volume(node, _volume(node, volume_id),
                                   destination)
        except Exception:
            # What can't be removed now the node's sweep finds.
            with contextlib.suppress(Exception):
                uncommitted.remove(node, volume_id, volume.name)
            raise


def _check_image(node: Node, volume: objects.Volume, image: str,
                 encryption: volume_types.Recorded | None,
                 size_gib: int) -> None:
    """What is made of an image has all of it, encrypted as its type says.

    An image that Cinder has cached may be that of a volume of another type.
    :param encryption: of the image
    :param size_gib: of the image
    :raises ForeignImage: if the type says otherwise; if the volume is to be
        smaller; or if it is to be larger, and is authenticated
    """
    check_size(image, size_gib, volume)
    try:
        wanted = node.volumes.wanted_encryption(volume, new=True)
    except volume_types.InvalidType as exc:
        raise exceptions.ForeignImage(image=image, reason=str(exc))
    check_alike(image, encryption, wanted)
    if encryption and encryption.authenticated and volume.size != size_gib:
        raise exceptions.ForeignImage(image=image, reason=(
            'it is authenticated and has %d GiB: a volume of %d GiB can\'t be '
            'made of it' % (size_gib, volume.size)))


def check_size(image: str, size_gib: int, volume: objects.Volume) -> None:
    """What is made of an image has all of it.

    A volume may have been extended since Cinder was asked for a clone.

    :param size_gib: of the image
    :raises ForeignImage: if the volume would be shorter
    """
    if volume.size < size_gib:
        raise exceptions.ForeignImage(image=image, reason=(
            'it has %d GiB, and the volume would have %d' % (
                size_gib, volume.size)))


def check_alike(image: str, encryption: volume_types.Recorded | None,
                wanted: volume_types.Encryption
                | volume_types.Recorded | None) -> None:
    """The data of an image can become those of a volume as they are.

    :param encryption: of the image
    :param wanted: of the volume
    :raises ForeignImage: if they can't
    """
    has, wants = map(volume_types.in_words, (encryption, wanted))
    if has != wants:
        raise exceptions.ForeignImage(image=image, reason=(
            'it is %s, and the volume would be %s' % (has, wants)))


def _make(node: Node, volume: objects.Volume, image: str,
          image_bytes: int, encryption: volume_types.Recorded | None
          ) -> None:
    """Make the LV of a volume, and the handle above it.

    :param image: the LV that it is made of
    :param image_bytes: how much of that is the image
    :param encryption: of the image
    :raises Reencrypting: if it would be longer than its header says
    """
    if rows.recorded(volume) != encryption:
        volume = node.volumes.set_encryption(volume, encryption)
    backing = rows.backing_bytes(volume)
    node.lvm.create_copy(volume.name, image, image_bytes, backing, volume.id,
                         rows.extra_bytes(volume))
    node.handles.ensure_handle_on_lv(volume.id, volume.name, backing)
    if backing > image_bytes:
        # The header that it has says how long its data is until that ends.
        devices.check_not_reencrypted(node, volume, 'larger than its source')


# -- the node's look

def sweep_images(node: Node, present: survey.Survey) -> None:
    """Whatever it is that fails, neither look stops the other, or moves.

    :param present: what there is on this node
    """
    for each in (lambda: snapshots.sweep(node, present),
                 lambda: uncommitted.accept_all(node, present),
                 lambda: node.volumes.correct_services(
                     node.host, present.lvs)):
        try:
            each()
        except Exception:
            LOG.exception('A periodic check of snapshots and new volumes '
                          'failed, will retry.')
