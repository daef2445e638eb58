# SPDX-License-Identifier: Apache-2.0
"""What a node asks of another node, and a package above the caller does.

All other calls between nodes name the function that acts; see :mod:`.rpc`.
"""

import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core import rpc


@rpc.declared('describe', prompt=True)
def describe(node: typing.Any) -> dict[str, typing.Any]:
    """Return what a node is and can take.

    Done by :meth:`cinder_localclone.service.assembly.Service.describe`.

    :returns: host (with pool), addresses, iSCSI initiator name, room
        (fields of :class:`.lvm_reports.FreeSpace`, bytes), problems (texts;
        none: the node is ready), doomed (bytes of LVs that are still
        overwritten; None: not known), time (seconds since the epoch, by that
        node's clock), sparse (whether it can leave out holes), block (bytes
        of a sector of its disks)
    """
    raise NotImplementedError


@rpc.declared('reconcile', prompt=True, casts=True,
              expected=(exceptions.Busy,))
def reconcile(node: typing.Any, volume_id: str) -> None:
    """Take a node's next steps for a volume.

    Done by :meth:`cinder_localclone.volumes.reconcile.Reconciler.reconcile`.
    That node goes on by itself after the time limit.

    :raises Busy: if other work on the volume takes too long
    """
    raise NotImplementedError
