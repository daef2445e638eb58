# SPDX-License-Identifier: Apache-2.0
"""A follow is not fooled by an export that is missing."""

from cinder_localclone.core import exceptions
from tests.helpers import remote_guest_case


class FenceWithoutExportTest(remote_guest_case.Case):

    def test_somebody_else_at_the_home_while_the_export_is_missing(self):
        """What is written at the old home is lost, or mixed in.

        1. A volume at rest at B is passed through to a guest on C.
        2. Something on B has the handle open as well: a guest that was
           detached by force and still runs, an operator's dd.
        3. The export to C is missing: the service was killed while it
           replaced it, or B's target refuses changes. That is logged, and
           stops nothing else at rest (``_trouble_with_exports``), so the
           volume is looked at for a follow next.
        4. :class:`.deferred.CheckPassedOnly` takes one who has the
           handle open for the export, and counts nobody.

        The move is committed, and C copies an LV that is written to. With a
        handle that nobody has open it counts "-1" users.

        By design: only an export that is there counts as the one that has
        the handle open.
        """
        self.home.opened.add(self.guest.handle)
        self.home.remote.clear()

        def refuses(*_args):
            raise exceptions.TargetTimeout(seconds=20)
        self.home.node.exports._inner.offer_again = refuses
        self.volume.group_id = None
        self.home.reconciler.converge_node()
        self.assertEqual((remote_guest_case.B + '#p', {}), (
            self.volume.host, self.world.shadows))
