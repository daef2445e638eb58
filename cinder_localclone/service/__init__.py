# SPDX-License-Identifier: Apache-2.0
"""The parts of the volume service beside the driver.

Others may import six modules:

- ``assembly``: build the node and start the periodic tasks.
- ``endpoint``: answer the calls of other nodes.
- ``messages``: tell users and operators why a request failed.
- ``operator``: the operator's command on this node.
- ``options``: the options of ``cinder.conf``.
- ``restore``: make local volumes available after a boot.

Private: ``directory``, ``key_manager``, ``notifications``, ``rpc``.
"""
