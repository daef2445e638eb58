# SPDX-License-Identifier: Apache-2.0
"""What runs beside the driver in the volume service.

``assembly`` builds the node and starts the periodic tasks. ``rpc`` sends
calls between nodes and ``handlers`` answers them. ``restore`` makes local
volumes available after a boot. ``options`` has the options of
``cinder.conf``; ``messages`` and ``notifications`` tell users and operators.
"""
