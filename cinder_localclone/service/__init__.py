# SPDX-License-Identifier: Apache-2.0
"""What runs beside the driver in the volume service.

Others may import six modules:

- ``assembly``: build the node and start the periodic tasks.
- ``endpoint``: answer the calls of other nodes.
- ``messages``: tell users and operators why something was not done.
- ``operator``: what the operator's command may ask of a node.
- ``options``: the options of ``cinder.conf``.
- ``restore``: make local volumes available after a boot.

Private: ``directory``, ``key_manager``, ``notifications``, ``rpc``.
"""
