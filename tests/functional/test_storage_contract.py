# SPDX-License-Identifier: Apache-2.0
"""The contract of a node's storage, on a real kernel."""

import json

from tests.functional import base


class StorageContractTest(base.LabTest):
    """What the simulated node does, LVM, device-mapper and iSCSI do."""

    def test_each_scenario(self):
        self.n1.service('stop')  # it would clean up what is no volume's
        done = self.n1.run(
            ['env', 'PYTHONPATH=%s' % self.lab.repo, self.lab.python, '-W',
             'ignore', '-m', 'tests.contracts.on_node',
             self.n1.directory / 'localclone.conf'], timeout=300)
        failed = json.loads(done.stdout)
        self.assertEqual({}, failed, '\n'.join([
            *failed.values(), done.stderr]))
