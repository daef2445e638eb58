# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes that can stop dead before or after any effect.

LVs, handles, clones, exports, sessions, records and peers stand behind the
interfaces of the real ones; the flows, the reconciler and the state machine
are the real code.
A volume has a few regions, each one value. A node that loses power loses its
devices, sessions and exports and what its disk has not flushed; it keeps its
LVs. A service that is killed loses only what it was about to do.

What must never happen fails the test, whoever catches the error; see
:meth:`.nodes.World.insist`.
"""

from tests.world.disks import CLEARED
from tests.world.disks import EMPTY
from tests.world.disks import GIB
from tests.world.disks import REGIONS
from tests.world.disks import ZERO
from tests.world.effects import Stopped
from tests.world.flows import plain as plain_flows
from tests.world.iscsi import SimExports
from tests.world.iscsi import SimSessions
from tests.world.nodes import extend
from tests.world.nodes import GEOMETRY
from tests.world.nodes import SimNode
from tests.world.nodes import World
from tests.world.peers import SimPeers
from tests.world.records import SimDecommission
from tests.world.records import SimInterrupted
from tests.world.records import SimMoves
from tests.world.records import SimQueue
from tests.world.stack import SimClones
from tests.world.stack import SimHandles
from tests.world.stack import SimLvm
from tests.world.upper_devices import FORMATTED
from tests.world.upper_devices import HEADER
from tests.world.upper_devices import Nova

__all__ = ('CLEARED', 'EMPTY', 'FORMATTED', 'GEOMETRY', 'GIB', 'HEADER',
           'Nova', 'REGIONS', 'SimClones', 'SimDecommission', 'SimExports',
           'SimHandles', 'SimInterrupted', 'SimLvm', 'SimMoves', 'SimNode',
           'SimPeers', 'SimQueue', 'SimSessions', 'Stopped', 'World', 'ZERO',
           'extend', 'plain_flows')
