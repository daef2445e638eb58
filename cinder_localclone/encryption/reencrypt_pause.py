# SPDX-License-Identifier: Apache-2.0
"""Re-encryption, as whatever must not happen beside it sees it.

Nobody writes a header, nor moves, copies or closes what is being encrypted
anew, unless that is paused before. It goes on by itself when it may again:
see :mod:`.reencrypt`.
"""

from collections.abc import Iterator
import contextlib

from oslo_log import log as logging

from cinder_localclone.core import encryption_exceptions
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import luks_header
from cinder_localclone.core.formats import survey
from cinder_localclone.core.interfaces import crypt as crypt_interfaces
from cinder_localclone.core import names
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects
from cinder_localclone.core import rows
from cinder_localclone.encryption import activate
from cinder_localclone.encryption import pinning

LOG = logging.getLogger(__name__)


def stop(node: Node, volume_id: str) -> None:
    """Nothing re-encrypts a volume on this node.

    :raises StillReencrypting: if what does is not done with it in time
    """
    if node.runner.is_running(volume_id) and not node.runner.stop(volume_id):
        raise encryption_exceptions.StillReencrypting(
            volume=volume_id, host=node.host,
            seconds=crypt_interfaces.STOPPING)


def settle(node: Node, volume: objects.Volume) -> None:
    """The same, and its header says what its data is.

    What was interrupted is recovered here, at its home: anywhere else that
    would write to what another node has, too. For a caller that holds the
    volume's lock; its handle is here.

    :raises StillReencrypting: if it can't be paused
    :raises Interrupted: if it was killed, and a guest keeps the volume open
    :raises LocalCloneError: if it can't be recovered
    """
    recorded = rows.recorded(volume)
    if recorded is None:
        return
    volume_id = rows.handle_id(volume)
    stop(node, volume_id)
    try:
        header = node.crypt.header(volume_id)
    except encryption_exceptions.HeaderDamaged as exc:
        # Who opens it says so. It may be read, and is recovered, elsewhere.
        LOG.warning('It is unknown whether volume %(volume)s was being '
                    're-encrypted: %(error)s',
                    {'volume': volume_id, 'error': exc})
        return
    if is_interrupted(node, volume_id, header):
        recover(node, volume)


@contextlib.contextmanager
def for_a_moment(node: Node, volume_id: str) -> Iterator[None]:
    """A re-encryption that is paused within goes on right afterwards.

    Else snapshots, which owners can take at any rate, would hold it up until
    the next check of the node each time. For a caller that holds the volume's
    lock, and neither moves nor closes the volume within.
    """
    volume = node.records.volume(volume_id)
    ran = bool(volume and rows.recorded(volume)
               and node.runner.is_running(volume_id))
    try:
        yield
    finally:
        if volume and ran:
            _go_on(node, volume)


def _go_on(node: Node, volume: objects.Volume) -> None:
    """What ran a moment ago runs again, unless an operator has paused it."""
    volume_id = volume.id
    try:
        lv = node.lvm.lvs().get(volume.name)
        if (lv is None or names.PAUSED in lv.tags
                or node.runner.is_running(volume_id)):
            return
        header = node.crypt.header(volume_id)
        if header.reencryption and not is_interrupted(
                node, volume_id, header):
            node.runner.start(volume_id)
    except (exceptions.LocalCloneError, OSError) as exc:
        LOG.warning('The re-encryption of volume %(volume)s continues only '
                    'after the next check of this node: %(error)s',
                    {'volume': volume_id, 'error': exc})


def is_interrupted(node: Node, volume_id: str, header: luks_header.Header
                   ) -> bool:
    """Whether what re-encrypted a volume did not end in order.

    It does not run. Most of the time only devices that are left tell.
    """
    present = survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))
    crypt = present.crypt(volume_id)
    found = header.reencryption
    return bool(found and (found.interrupted or found.complete)
                or crypt and crypt.target != 'crypt')


def recover(node: Node, volume: objects.Volume) -> None:
    """Open a volume anew, which puts together what was left of it.

    If only the end of its header is missing that is written, open or not.

    :raises Interrupted: if it is open, and in use: nobody can put together
        what is beneath a guest
    :raises ForeignHeader: if its header is not that of its row; nothing is
        closed or written then
    """
    volume_id, recorded = rows.handle_id(volume), rows.recorded(volume)
    present = survey.Survey({}, node.handles.devices(
        survey.names_of(volume_id)))
    header = node.crypt.header(volume_id)
    pinning.check(volume_id, header, pinning.of_row(recorded))
    if header.reencryption and header.reencryption.complete:
        activate.end_reencryption(
            node.crypt, node.keys, volume_id, header,
            pinning.of_row(recorded))
        if not is_interrupted(node, volume_id, node.crypt.header(volume_id)):
            return  # nothing but its header had to be mended
    if present.crypt(volume_id):
        if present.users(volume_id):
            raise encryption_exceptions.Interrupted(
                volume=volume_id, host=node.host, count=1,
                device=names.crypt(volume_id))
        node.handles.close_top(volume_id)
    activate.open_volume(
        node.crypt, node.keys, volume_id, pinning.of_row(recorded),
        discards=activate.takes_discards(node, volume))
    LOG.info('Volume %s was recovered after its re-encryption was '
             'interrupted.',
             volume_id)


def check_none(node: Node, volume: objects.Volume, what: str) -> None:
    """A volume is not being re-encrypted, nor is that paused.

    :param what: is to be done to it, such as "extended"
    :raises Reencrypting: if it is
    """
    volume_id = rows.handle_id(volume)
    handle = names.handle(volume_id)
    if rows.recorded(volume) and handle in node.handles.devices([handle]):
        # One that can't be read keeps nobody from having more room.
        with contextlib.suppress(encryption_exceptions.HeaderDamaged):
            header = node.crypt.header(volume_id)
            if header.reencryption or is_interrupted(node, volume_id, header):
                raise encryption_exceptions.Reencrypting(
                    volume=volume.id, what=what)
