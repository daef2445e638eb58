# SPDX-License-Identifier: Apache-2.0
"""Creating a volume that nothing encrypts; and what Cinder asks for when one
could not be created, and is to be created again.
"""

from oslo_log import log as logging

from cinder_localclone import exceptions
from cinder_localclone.moves import checks
from cinder_localclone.moves import removal
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import rows

LOG = logging.getLogger(__name__)


def create(node: nodes.Node, volume: ports.Volume) -> None:
    """Create an LV, and its handle.

    An LV that is there already is made anew: nobody was given what an
    earlier call has left.

    :raises StaleMove: if it is not to be created here (any more)
    :raises TooLate: if it is not being created (any more)
    :raises LocalCloneError: if something else fails; nothing is left then
    """
    with node.lock(volume.id):
        row = checks.volume_at_home(node, volume.id)
        if row.status != 'creating':
            raise exceptions.TooLate(what='Volume ' + volume.id)
        size, extra = rows.body_bytes(row), rows.extra_bytes(row)
        try:
            if not node.stack.create_lv(row.name, size, row.id,
                                        extra_bytes=extra):
                _remove(node, row)
                node.stack.create_lv(row.name, size, row.id,
                                     extra_bytes=extra)
            node.stack.ensure_handle_on_lv(row.id, row.name, size)
        except Exception:
            _try_remove(node, row)
            raise


def give_up(node: nodes.Node, volume: ports.Volume) -> None:
    """Remove what is left here of a volume that could not be created.

    Cinder asks for that when it has given the volume to its scheduler again
    (``OnFailureRescheduleTask`` of ``cinder/volume/flows/manager/
    create_volume.py``), as if it were to be deleted. By then it may be there
    already, here or on another node, whole and with a tenant's data: that is
    not touched.

    :param volume: as Cinder has it, without a host
    """
    with node.lock(volume.id):
        row = node.records.volume(volume.id)
        if row is not None and (
                checks.is_home(node, row) or row.status != 'creating'):
            return
        _try_remove(node, volume)


def _remove(node: nodes.Node, volume: ports.Volume) -> None:
    node.stack.remove_handle(volume.id)
    removal.remove_volume_lv(node, volume.name)


def _try_remove(node: nodes.Node, volume: ports.Volume) -> None:
    try:
        _remove(node, volume)
    except Exception as exc:  # must not hide why it was not created
        LOG.error('LV %(lv)s of volume %(volume)s, which was not created, '
                  'could not be removed: %(error)s', {
                      'lv': volume.name, 'volume': volume.id, 'error': exc})
