# SPDX-License-Identifier: Apache-2.0
"""Local clones: volumes made of an image on the node that has the image.

An image is a snapshot, another volume, or a cached image. No byte is copied.
Cinder may have sent the request to another node: the volume's row names the
node of the image as its home before anything is created there. Only locks of
the node with the image are held. If the clone fails, the row names the node of
the request again.
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
from cinder_localclone.core import rpc
from cinder_localclone.core.volume import Volume
from cinder_localclone.core import volume_types
from cinder_localclone.encryption import devices
from cinder_localclone.encryption import policy
from cinder_localclone.encryption import rotate
from cinder_localclone.moves import source as moving
from cinder_localclone.volumes import snapshots
from cinder_localclone.volumes import uncommitted

LOG = logging.getLogger(__name__)


# -- at the node of Cinder's request

def from_snapshot(node: Node, volume_id: str, snapshot_id: str) -> None:
    """Create a volume from a snapshot, on the node that has the snapshot.

    :raises ForeignImage: if no node of this backend has the snapshot
    :raises LocalCloneError: if the volume could not be created
    """
    snapshot = node.snapshots.snapshot(snapshot_id)
    host = snapshot.node if snapshot else ''
    _check_backend(node, 'snapshot ' + snapshot_id, host)

    def make(destination: str) -> None:
        rpc.call_at(host, make_from_snapshot, node, volume_id, snapshot_id,
                    destination)
    _bear(node, _volume(node, volume_id), host, make)


def from_volume(reconciler: snapshots.Reconciler, volume_id: str,
                source_id: str, seconds: float) -> None:
    """Create a volume from another volume, at the home of its source.

    A source from Cinder's image cache is only used if its copy is complete:
    otherwise Cinder downloads the image, which is faster.

    :param seconds: time limit of the wait while the source is copied to its
        home
    :raises ForeignImage: if the source is not a volume of this backend
    :raises LocalCloneError: if the volume could not be created
    """
    node = reconciler.node
    volume = _volume(node, volume_id)
    cached = volume.source_volid != source_id and volume.use_quota

    def attempt() -> None:
        source = node.volumes.volume(source_id)
        if source is None:
            raise exceptions.TooLate(what='Volume ' + source_id)
        host = source.home
        _check_backend(node, 'volume ' + source_id, host)
        if cached and _is_in_other_zone(node, volume, host):
            raise exceptions.ForeignImage(
                image='volume ' + source_id,
                reason='it is in another availability zone')
        snapshots.check_copied(node, source)

        def make(destination: str) -> None:
            rpc.call_at(host, make_from_volume, reconciler, volume_id,
                        source_id,
                        destination)
        _bear(node, volume, host, make)
    snapshots.when_copied(0 if cached else seconds, attempt)


def _volume(node: Node, volume_id: str) -> Volume:
    volume = node.volumes.volume(volume_id)
    if volume is None:
        raise exceptions.TooLate(what='Volume ' + volume_id)
    return volume


def _check_backend(node: Node, image: str, host: str) -> None:
    """Check that an image is on a node of this backend.

    :raises ForeignImage: if it is not
    """
    if not names.same_backend(host, node.host):
        raise exceptions.ForeignImage(
            image=image, reason='it is on %s' % (
                host or 'no node of this backend'))


def _is_in_other_zone(node: Node, volume: Volume, host: str) -> bool:
    zone = node.services.zone_of(host)
    return bool(zone and zone != volume.availability_zone)


def _bear(node: Node, volume: Volume, host: str,
          make: Callable[[str], None]) -> None:
    """Record the home of a volume, and have the volume created there.

    :param volume: as Cinder has requested it
    :param host: service host of the node with the image
    :param make: ``make(destination)`` creates the volume on that node
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
    """Restore the home; Cinder may still write an image that it downloads."""
    try:
        node.volumes.set_home(volume_id, home, asked)
    except Exception as exc:  # a failure here must not hide the first error
        LOG.warning('Volume %(volume)s was not created, but its row still '
                    'names %(host)s as its home: %(error)s',
                    {'volume': volume_id, 'host': home, 'error': exc})


# -- at the node of the image

# Twice the time: the new volume may have to move afterwards.
@rpc.method('create_from_snapshot', rpc.SNAPSHOT, times=2)
def make_from_snapshot(node: Node, volume_id: str, snapshot_id: str,
                       destination: str) -> None:
    """Create a volume from a snapshot of this node.

    :param destination: service host to which the volume moves afterwards; '':
        it stays
    :raises MissingData: if this node does not have the snapshot
    :raises TooLate: if Cinder no longer waits for the volume
    :raises LocalCloneError: if LVM fails
    """
    with _uncommitted(node, volume_id, destination) as volume:
        with node.lock(snapshot_id):
            snapshot = snapshots.on_this_node(node, snapshot_id)
            encryption = snapshot.encryption
            _check_image(node, volume, 'snapshot ' + snapshot_id, encryption,
                         snapshot.size_gib)
            _make(node, volume, snapshot.lv, snapshot.size_bytes, encryption)


@rpc.method('create_from_volume', rpc.HOME, times=2, expected=(
    exceptions.BeingCopied,))
def make_from_volume(reconciler: snapshots.Reconciler, volume_id: str,
                     source_id: str, destination: str) -> None:
    """Create a volume from another volume whose home is this node.

    :param destination: as for :func:`make_from_snapshot`
    :raises BeingCopied: if the source is still being copied to this node
    :raises LocalCloneError: as :func:`.snapshots.at_home`, and as
        :func:`make_from_snapshot`
    """
    node = reconciler.node
    with _uncommitted(node, volume_id, destination) as volume:
        with node.lock(source_id), devices.reencryption_paused(
                node, source_id):
            image = snapshots.at_home(node, source_id, reconciler.progress)
            encryption = image.encryption
            _check_image(node, volume, 'volume ' + source_id, encryption,
                         image.size)
            _make(node, volume, image.name, image.backing_bytes(), encryption)


@contextlib.contextmanager
def _uncommitted(node: Node, volume_id: str, destination: str
                 ) -> Iterator[Volume]:
    """Yield the row of a volume to create; move the new volume afterwards.

    The move waits for another node, so the image is not locked during the
    move. If anything fails, everything is removed.

    :param destination: service host to which the volume moves; '': it stays
    """
    snapshots.check_pool(node)
    with node.lock(volume_id):
        volume = uncommitted.being_created(node, volume_id)
        # While it is "downloading", Cinder itself replaces the key.
        if volume.status != 'creating':
            raise exceptions.TooLate(what='Volume ' + volume_id)
        try:
            yield volume
            volume = _volume(node, volume_id)
            rotate.give_own_key(node, volume)
            if destination:
                moving.move_volume(node, _volume(node, volume_id),
                                   destination)
        except Exception:
            # The node's sweep removes the rest later.
            with contextlib.suppress(Exception):
                uncommitted.remove(node, volume_id, volume.name)
            with contextlib.suppress(Exception):
                policy.release_of_image(node, volume)
            raise


def _check_image(node: Node, volume: Volume, image: str,
                 encryption: volume_types.Recorded | None,
                 size_gib: int) -> None:
    """Check that a volume can be made of an image, with the right encryption.

    An image from Cinder's image cache may belong to a volume of another type.

    :param encryption: of the image
    :param size_gib: of the image
    :raises ForeignImage: if the encryption differs from the volume's type; if
        the volume would be smaller; or if it would be larger, and is
        authenticated
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


def check_size(image: str, size_gib: int, volume: Volume) -> None:
    """Check that a volume is at least as large as its image.

    The source may have been extended after Cinder requested the clone.

    :param size_gib: of the image
    :raises ForeignImage: if the volume would be smaller
    """
    if volume.size < size_gib:
        raise exceptions.ForeignImage(image=image, reason=(
            'it has %d GiB, and the volume would have %d' % (
                size_gib, volume.size)))


def check_alike(image: str, encryption: volume_types.Recorded | None,
                wanted: volume_types.Encryption
                | volume_types.Recorded | None) -> None:
    """Check that a volume can use the data of an image unchanged.

    :param encryption: of the image
    :param wanted: of the volume
    :raises ForeignImage: if their encryption differs
    """
    has, wants = map(volume_types.in_words, (encryption, wanted))
    if has != wants:
        raise exceptions.ForeignImage(image=image, reason=(
            'it is %s, and the volume would be %s' % (has, wants)))


def _make(node: Node, volume: Volume, image: str,
          image_bytes: int, encryption: volume_types.Recorded | None
          ) -> None:
    """Create the LV of a volume, and its handle.

    :param image: name of the LV to clone
    :param image_bytes: length of the image on this LV, in bytes
    :param encryption: of the image
    :raises Reencrypting: if the volume would be larger than its header says
    """
    if volume.encryption != encryption:
        volume = node.volumes.set_encryption(volume, encryption)
    backing = volume.backing_bytes()
    node.lvm.create_copy(volume.name, image, image_bytes, backing, volume.id,
                         volume.extra_bytes)
    node.handles.ensure_handle_on_lv(volume.id, volume.name, backing)
    if backing > image_bytes:
        # During a re-encryption the header states a fixed data length.
        devices.check_not_reencrypted(node, volume, 'larger than its source')


# -- the node's sweep

def sweep_images(node: Node, present: survey.Survey) -> None:
    """Sweep snapshots, uncommitted LVs and service records of this node.

    If a sweep fails, the error is logged, and the others still run.

    :param present: the devices and LVs of this node
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
