# SPDX-License-Identifier: Apache-2.0
"""An operator's way out works while a guest waits for its old home."""

from cinder_localclone.volumes import operations
from tests.helpers import remote_guest_case
from tests.helpers.remote_guest_case import Kernel


class OpenedWithoutSourceTest(remote_guest_case.Case):

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
