# SPDX-License-Identifier: Apache-2.0
import ddt
import testtools

from cinder_localclone.core import state
from cinder_localclone.core.state import Phase as P
from cinder_localclone.volumes import decision
from cinder_localclone.volumes.decision import Attachment as At
from cinder_localclone.volumes.decision import Verdict as V


def moving(phase, committed=True):
    token = state.Token(phase, 'n', state.Geometry(128, 32, 8))
    return state.Move('v', 's', token, committed, 'n9@l', 'n1@l', 'a',
                      'b', 1)


def request(node='n2@l', host='n2', status='reserved', attachments=None,
            initiator='iqn.x', **more):
    if attachments is None:
        attachments = [At('vm', None)]
    return decision.Request(
        status=status, home='n1@l', node=node, connector_host=host,
        initiator=initiator, attachments=attachments, **more)


CASES = (
    # what, request, verdict, part of the reason
    ('home', request('n1@l', 'n1'), V.LOCAL, ''),
    ('home, moving still', request('n1@l', 'n1', move=moving(
        P.MIGRATING)), V.LOCAL, ''),
    ('home, backup', request('n1@l', 'n1', 'backing-up', []), V.LOCAL, ''),
    ('home, another instance elsewhere', request(
        'n1@l', 'n1', attachments=[At('vm', None), At('other', 'n2')]),
     V.REFUSE, 'another instance on n2'),
    ('other node', request(), V.MOVE, ''),
    ('other node, again', request(attachments=[At('vm', 'n2')]), V.MOVE, ''),
    ('shelved, in-use without a host', request(status='in-use'), V.MOVE, ''),
    ('as Nova attached before', request(status='attaching'), V.MOVE, ''),
    ('live migration', request(status='in-use', attachments=[
        At('vm', 'n1'), At('vm', None)]), V.LIVE_MOVE, ''),
    ('another instance', request(status='in-use', attachments=[
        At('other', 'n1'), At('vm', None)]), V.REFUSE, 'another instance'),
    ('given up, then deleted', request(status='deleting', attachments=[]),
     V.REFUSE, 'being deleted'),
    ('given up, then deleted, at home', request(
        'n1@l', 'n1', 'error_deleting', []), V.REFUSE, 'being deleted'),
    ('reserved, then deleted', request(status='deleting'), V.REFUSE,
     'being deleted'),
    ('given up, then unmanaged', request(status='unmanaging', attachments=[]),
     V.REFUSE, 'being unmanaged'),
    ('given up, then unmanaged, at home', request(
        'n1@l', 'n1', 'error_unmanaging', []), V.REFUSE, 'being unmanaged'),
    ('no such backend', request(None, 'x'), V.REMOTE, 'does not run'),
    ('no such backend, live', request(
        None, 'x', 'in-use', [At('vm', 'n1'), At('vm', None)]),
     V.REMOTE, 'does not run'),
    ('no such backend, no initiator', request(None, 'x', initiator=None),
     V.REFUSE, 'no iSCSI initiator'),
    ('backup on another node', request(status='backing-up', attachments=[]),
     V.REMOTE, 'not for an instance'),
    ('backup of an attached volume', request(
        status='backing-up', attachments=[At('vm', 'n1')]),
     V.REMOTE, 'not for an instance'),
    ('backup on the host of the instance', request(
        status='backing-up', attachments=[At('vm', 'n2')]),
     V.REMOTE, 'not for an instance'),
    ('attached by hand', request(
        status='attaching', attachments=[At(None, None)]),
     V.REMOTE, 'not for an instance'),
    ('reserved by nobody', request(attachments=[]),
     V.REMOTE, 'not for an instance'),
    ('image on another node', request(status='downloading', attachments=[]),
     V.REMOTE, 'not for an instance'),
    ('host copy', request(status='maintenance', attachments=[]),
     V.REMOTE, 'not for an instance'),
    ('pinned', request(pinned='it belongs to a group'), V.REMOTE_ATTACHMENT,
     'group'),
    ('pinned, live', request(
        pinned='it belongs to a group', status='in-use',
        attachments=[At('vm', 'n1'), At('vm', None)]), V.REMOTE_ATTACHMENT,
     'group'),
    ('pinned, no initiator', request(
        pinned='it belongs to a group', initiator=None), V.REFUSE,
     'no iSCSI initiator'),
    ('copied by Cinder during a live migration', request(
        'n1@l', 'n1', 'maintenance', [], move=moving(P.STARTING)),
     V.REFUSE, 'being moved'),
    ('copied by Cinder during hydration', request(
        'n1@l', 'n1', 'maintenance', [], move=moving(P.MIGRATING),
        by_cinder=True), V.REFUSE, 'migrating'),
    ('other node while Cinder copies it', request(
        pinned='Cinder is migrating it', by_cinder=True), V.REMOTE,
     'migrating'),
    ('other node during hydration and while Cinder wants to copy it', request(
        move=moving(P.MIGRATING), by_cinder=True), V.REMOTE,
     'still being moved'),
    ('copied by Cinder', request(
        'n1@l', 'n1', 'maintenance', [], by_cinder=True), V.LOCAL, ''),
    ('its instance while Cinder wants to copy it', request(
        'n1@l', 'n1', move=moving(P.MIGRATING), by_cinder=True),
     V.LOCAL, ''),
    ('backup during hydration', request(
        'n1@l', 'n1', 'backing-up', [], move=moving(P.MIGRATING)),
     V.LOCAL, ''),
    ('during hydration', request(move=moving(P.MIGRATING)),
     V.REMOTE_ATTACHMENT,
     'still being moved'),
    ('while completing', request(move=moving(P.COMPLETING)),
     V.REMOTE_ATTACHMENT,
     'still being moved'),
    ('during live migration', request(move=moving(P.STARTING)),
     V.REFUSE, 'starting'),
    ('live migration, asked for again', request(
        'n1@l', 'n1', 'in-use', [At('vm', 'n9'), At('vm', 'n1')],
        move=moving(P.STARTING)), V.LOCAL, ''),
    ('the source was dropped, and may be open', request(
        'n1@l', 'n1', move=moving(P.STARTING)), V.REFUSE, 'starting'),
    ('the source has it, and is its home yet', request(
        'n1@l', 'n1', move=moving(P.STARTING, False)), V.LOCAL, ''),
    ('backup during a live migration', request(
        'n1@l', 'n1', 'backing-up', [At('vm', 'n9'), At('vm', 'n1')],
        move=moving(P.STARTING)), V.REFUSE, 'starting'),
    ('while rolled back', request(move=moving(P.ROLLING_BACK, False)),
     V.REFUSE, 'rolling-back'),
    ('live migration during hydration', request(
        status='in-use', move=moving(P.MIGRATING),
        attachments=[At('vm', 'n1'), At('vm', None)]), V.REMOTE_ATTACHMENT,
     'still being moved'),
    ('live migration of what is passed through', request(
        status='in-use', move=moving(P.MIGRATING), attachments=[
            At('vm', 'n3'), At('vm', None)]), V.REMOTE_ATTACHMENT,
     'still being moved'),
    ('the home commits a move as it is asked', request(
        status='in-use', move=moving(P.MIGRATING, False), attachments=[
            At('vm', 'n3'), At('vm', None)]), V.REFUSE, 'preparing'),
)


@ddt.ddt
class DecisionTest(testtools.TestCase):

    @ddt.data(*CASES)
    @ddt.unpack
    def test_table(self, what, asked, verdict, reason):
        found = decision.decide(asked)
        self.assertEqual(verdict, found.verdict, what)
        self.assertIn(reason, found.reason, what)
        if verdict is V.REFUSE:
            self.assertTrue(found.reason.strip())

    def test_in_words(self):
        for text, found in (
                ('local', decision.Decision(V.LOCAL)),
                ('remote (at X)', decision.Decision(V.REMOTE, 'at X.'))):
            self.assertEqual(text, str(found))
