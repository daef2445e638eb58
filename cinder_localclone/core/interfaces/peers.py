# SPDX-License-Identifier: Apache-2.0
"""Methods of other nodes, declared for callers in lower packages.

A caller can't import the implementation from a higher package. So it names the
declaration, and never runs its body. All other calls between nodes name the
function that acts; see :mod:`.rpc`, also for the arguments of ``declared``.
"""

import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core import rpc


@rpc.declared('describe', prompt=True)
def describe(node: typing.Any) -> dict[str, typing.Any]:
    """Return the capabilities and the condition of a node.

    Answered by :meth:`cinder_localclone.service.assembly.Service.describe`.

    :returns: host (with pool), addresses, initiator (iSCSI name), free_space
        (fields of :class:`.lvm_reports.FreeSpace`, bytes), problems (texts;
        none: the node is ready), to_wipe (bytes of LVs to be wiped; None: not
        known), block (logical block size of its disks, bytes), time (seconds
        since the epoch, by the clock of the node), sparse (whether its LVs
        are thin, so a copy to it can leave out holes)
    """
    raise NotImplementedError


@rpc.declared('reconcile', prompt=True, casts=True,
              expected=(exceptions.Busy,))
def reconcile(node: typing.Any, volume_id: str) -> None:
    """Have a node take the next steps for a volume.

    Answered by
    :meth:`cinder_localclone.volumes.reconcile.Reconciler.reconcile`. The time
    limit ends only the caller's wait, not the work of the node.

    :raises Busy: if other work on the volume takes too long
    """
    raise NotImplementedError
