# SPDX-License-Identifier: Apache-2.0
"""An operator's way out works while a guest waits for its old home."""

import fixtures

from cinder_localclone.core import exceptions
from cinder_localclone.volumes import operations
from tests.scenarios import test_deferred_move_when_something_fails as test_follow_edges  # noqa: E501


class Kernel(fixtures.Fixture):
    """I/O in flight to a home that is away, or serves it no more, waits.

    For localclone_source_timeout, a day by default, or until the session is
    logged out. Whoever waits can't be killed, and a device with such I/O
    can't be suspended.

    :param node: where that is passed through
    """

    def __init__(self, node, handle, volume_id):
        super().__init__()
        self.node, self.handle, self.volume_id = node, handle, volume_id

    def waits(self):
        home = self.node.world.nodes.get(
            self.node.passed.get(self.volume_id))
        return self.handle in self.node.opened and home and (
            home.dead or self.volume_id not in {
                each for each, _who in home.remote})

    def _setUp(self):
        sessions, stack = (self.node.node.sessions._inner,
                           self.node.sim_stack._inner)
        end_passed, follow = sessions.end_passed, stack.follow_onto_clone

        def ended(volume_id):
            if not self.waits():
                return end_passed(volume_id)
            # What waited has failed: whoever was to be killed is.
            self.node.opened.discard(self.handle)
            return self.node.passed.pop(volume_id) is not None

        def suspended(*args):
            if self.waits():
                raise exceptions.CommandTimeout(command='dmsetup suspend',
                                                seconds=30)
            return follow(*args)
        sessions.end_passed, stack.follow_onto_clone = ended, suspended


class OpenedWithoutSourceTest(test_follow_edges.Case):

    def test_the_operators_way_out_while_the_guest_waits(self):
        """The command fails each time, and the guest waits for a day.

        1. A volume follows its guest: committed, but the handle is not on
           the clone yet. The old home is lost for good.
        2. The guest's I/O waits for the session with it.
        3. An operator gives out what is local (``repair
           --without-source``). The handle is to be suspended for the swap,
           which waits for that I/O, too: CommandTimeout.

        By design: without a source the session with the old home is ended
        before the swap (:func:`.destination._put_on_clone`): what
        waits for it fails, which is what the operator has asked for.
        """
        self.commit()
        self.useFixture(Kernel(self.there, self.guest.handle, self.guest.id))
        self.home.stop(power=True)
        self.home.gone = True
        operations.open_without_source(self.there.reconciler, self.guest.id)
        self.assertIn('localclone-clone', self.handle(self.there)['below'])
