# SPDX-License-Identifier: Apache-2.0
"""What the initiator's records have in vain is removed."""

from cinder_localclone.core import iscsi
from cinder_localclone.moves import remote_attachment
from tests.helpers import sessions_case
from tests import world as worlds


class RecordLeftTest(sessions_case.Case):

    def test_of_a_volume_that_was_detached_meanwhile(self):
        """Each boot tries to log in to what is not served to this node.

        1. A volume is passed through on C; that node dies. Its instance is
           evacuated: the volume is detached, C does not answer, its home
           withdraws the export.
        2. C boots. The records of its initiator, which outlive that, still
           have the target; nobody lets it in any more, so there is neither
           a session nor a handle.
        3. :func:`.remote_attachment.look` sees what attachments name,
        sessions, and
           handles, but no records.

        So it stays for good, with its secret: each boot of C tries that
        login (:func:`.boot._passed`), waits for homes that are down, and
        reports a volume that was not restored. The same after a login that
        failed as the volume was attached.

        By design: a record without a session is something that is passed
        through as well, and ends as a session does.
        """
        world = worlds.World(hosts=('a@l', 'b@l'))
        volume = world.create_volume('a@l')
        node = world.nodes['b@l'].node
        object.__setattr__(node, 'sessions', self.sessions)
        iqn = iscsi.pass_iqn('iqn.x:', volume.id, 'iqn.b', 'a@l')
        self.called.iscsiadm.recorded.return_value = [iqn]
        self.called.iscsiadm.is_down.return_value = False
        self.assertTrue(remote_attachment.look(node))
        self.called.iscsiadm.end_session.assert_called_once_with(iqn, 30)
