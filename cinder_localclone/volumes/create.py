# SPDX-License-Identifier: Apache-2.0
"""Creating a volume that nothing encrypts; and what Cinder asks for when one
could not be created, and is to be created again.
"""

from oslo_log import log as logging

from cinder_localclone import encryption
from cinder_localclone import newborns
from cinder_localclone import node as nodes
from cinder_localclone import ports
from cinder_localclone import rows

LOG = logging.getLogger(__name__)


def create(node: nodes.Node, volume: ports.Volume) -> None:
    """Create an LV, and its handle.

    :raises TooLate: if it is not to be created here (any more)
    :raises AlreadyThere: as :func:`.newborns.being_created`
    :raises LocalCloneError: if something else fails; nothing is left then
    """
    with node.lock(volume.id):
        row = newborns.being_created(node, volume.id)
        try:
            newborns.make(node, row)
            node.stack.ensure_handle_on_lv(row.id, row.name,
                                           rows.body_bytes(row))
        except Exception:
            newborns.remove_failed(node, row)
            raise


def give_up(node: nodes.Node, volume: ports.Volume) -> None:
    """Remove what is left here of a volume that could not be created.

    Cinder asks for that when it has given the volume to its scheduler again
    (``OnFailureRescheduleTask`` of ``cinder/volume/flows/manager/
    create_volume.py``), as if it were to be deleted. By then it may be there
    already, here or on another node, whole and with a tenant's data: that is
    not touched. What fails is tried again by this node's sweep.

    :param volume: as Cinder has it, without a host
    """
    try:
        with node.lock(volume.id):
            newborns.remove_unwanted(node, volume.id, volume.name)
            encryption.give_back(node, volume)
    except Exception as exc:  # Cinder only logs it
        LOG.warning('The LV or the secret of volume %(volume)s, which could '
                    'not be created, could not be removed, will retry: '
                    '%(error)s',
                    {'volume': volume.id, 'error': exc})
