# SPDX-License-Identifier: Apache-2.0
"""What guests elsewhere have of a volume at rest."""

from unittest import mock

from tests.helpers import reconcile_case
from tests.world import iscsi

A, B = reconcile_case.A, reconcile_case.B


class Base(reconcile_case.Base):

    def fail_once(self):
        self.exported('in-use')
        with mock.patch.object(iscsi.SimExports, 'export_again',
                               side_effect=OSError('no such address')):
            self.reconcile()
        self.assertEqual(set(), self.a.remote)

    def cut(self):
        self.a.stop(power=True)
        self.a.dead = False
