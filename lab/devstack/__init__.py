# SPDX-License-Identifier: Apache-2.0
"""``make devstack``: the DevStack plugin on a node, by DevStack's functions.

``checkout`` finds what of a checkout of DevStack the node needs; ``phases.sh``
runs the phases there, ``machine.sh`` makes the node one that DevStack could
have to itself.
"""
