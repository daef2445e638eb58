# SPDX-License-Identifier: Apache-2.0
import itertools

import ddt
import testtools

from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core.state import Event as E
from cinder_localclone.core.state import Phase as P

GEOMETRY = state.Geometry(128, 32, 8)
#: The contract, written out a second time: (phase, event, committed).
ALLOWED = {
    (P.ABSENT, E.MOVE_BEGUN, False): P.MIGRATING,
    (P.ABSENT, E.LIVE_MOVE_BEGUN, False): P.STARTING,
    (P.STARTING, E.FAILED, False): P.ROLLING_BACK,
    (P.MIGRATING, E.FAILED, False): P.ROLLING_BACK,
    (P.STARTING, E.SOURCE_DETACHED, True): P.MIGRATING,
    (P.STARTING, E.DESTINATION_DETACHED, True): P.ROLLING_BACK,
    (P.MIGRATING, E.HYDRATED, True): P.COMPLETING,
    (P.COMPLETING, E.DRAINED, True): P.RELEASING,
    (P.STARTING, E.VOLUME_DELETED, True): P.RELEASING,
    (P.MIGRATING, E.VOLUME_DELETED, True): P.RELEASING,
    (P.COMPLETING, E.VOLUME_DELETED, True): P.RELEASING,
    (P.RELEASING, E.SOURCE_REMOVED, True): P.ABSENT,
    (P.ROLLING_BACK, E.DESTINATION_REMOVED, False): P.ABSENT,
}


@ddt.ddt
class StateTest(testtools.TestCase):

    @ddt.data(*itertools.product(P, E, (True, False)))
    def test_whole_table(self, key):
        if key in ALLOWED:
            self.assertIs(ALLOWED[key], state.next_phase(*key))
        else:
            self.assertRaises(exceptions.InvalidTransition,
                              state.next_phase, *key)

    def test_every_phase_has_a_way_out_and_in(self):
        for phase in P:
            self.assertTrue([k for k in state.TRANSITIONS if k[0] is phase])
            self.assertIn(phase, state.TRANSITIONS.values())

    def test_the_source_is_removed_only_after_release(self):
        ways = [k for k in state.TRANSITIONS if k[1] is E.SOURCE_REMOVED]
        self.assertEqual([(P.RELEASING, E.SOURCE_REMOVED, True)], ways)
        into = {k[1] for k, v in state.TRANSITIONS.items()
                if v is P.RELEASING}
        self.assertEqual({E.DRAINED, E.VOLUME_DELETED}, into)

    @ddt.data(*P)
    def test_token_is_read_back(self, phase):
        token = state.Token(phase, 'abc123', GEOMETRY)
        self.assertEqual(token, state.Token.parse(str(token)))
        self.assertLess(len(str(token)), 255)

    def test_what_is_stored_stays_readable(self):
        """Rows written by any earlier version: never change these texts."""
        for phase in ('starting', 'migrating', 'completing', 'releasing',
                      'rolling-back'):
            text = 'lc1:%s:0123456789ab:128:32:8' % phase
            token = state.Token.parse(text)
            self.assertEqual(
                (state.Phase(phase), '0123456789ab',
                 state.Geometry(128, 32, 8)),
                (token.phase, token.nonce, token.geometry))
            self.assertEqual(text, str(token))

    @ddt.data(None, '', 'lc1:migrating', 'lc2:migrating:n:1:2:3',
              'lc1:flying:n:1:2:3', 'lc1:migrating:n:x:2:3')
    def test_bad_token_is_refused(self, text):
        self.assertRaises(exceptions.InvalidToken, state.Token.parse, text)

    @ddt.data((1 << 30, 16384, 4 << 20), ((1 << 30) + 1, 16385, 4 << 20),
              (600 * 32576 << 16, 600 * 32576, (2 * 600 + 64) * 4096),
              ((600 * 32576 << 16) + 1, 600 * 32576 + 1,
               (2 * 601 + 64) * 4096),
              (16 << 40, 268435456, (2 * 8241 + 64) * 4096))
    @ddt.unpack
    def test_metadata_has_room(self, size, regions, metadata):
        self.assertEqual(regions, GEOMETRY.regions(size))
        self.assertEqual(metadata, GEOMETRY.metadata_bytes(size))

    @ddt.data(*itertools.product(P, (True, False)))
    @ddt.unpack
    def test_shown_phase(self, phase, committed):
        """Before its commit a move is prepared, whatever is stored."""
        moving = state.Move('v', 's', state.Token(phase, 'n', GEOMETRY),
                            committed, 'a', 'b', 'x', 'y', 1)
        self.assertEqual(
            'preparing' if not committed and phase in (
                P.MIGRATING, P.STARTING) else phase.value,
            moving.display_phase)

    def test_secret_is_not_shown(self):
        moving = state.Move('v', 's', state.Token(P.MIGRATING, 'n',
                                                  GEOMETRY),
                            False, 'a', 'b', 'x', 'y', 1,
                            auth='CHAP u secret')
        self.assertNotIn('secret', repr(moving))
