# SPDX-License-Identifier: Apache-2.0
"""What runs beside the driver in the volume service.

``assembly`` builds the node and starts the periodic tasks. ``rpc`` sends
calls to other nodes and ``endpoint`` answers theirs. ``restore`` makes local
volumes available after a boot. ``options`` has the options of
``cinder.conf``; ``messages`` and ``notifications`` tell users and operators.
"""
