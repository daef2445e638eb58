# SPDX-License-Identifier: Apache-2.0
"""What the kernel has of the network; see ip-xfrm(8)."""

from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import process


@privsep.entrypoint
def ipsec_policies(timeout: float) -> str:
    """Return the IPsec policies of this node, as ip(8) prints them.

    Allows: reads the IPsec policies of the kernel. They contain no keys.

    :param timeout: seconds
    """
    return process.run('ip', 'xfrm', 'policy', timeout=timeout)
