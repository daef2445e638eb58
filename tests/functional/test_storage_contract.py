# SPDX-License-Identifier: Apache-2.0
"""The contracts of a node's storage and of headers, on a real kernel."""

import json

from tests.functional import base


class Case(base.LabTest):

    def run_scenarios(self, contract):
        self.n1.service('stop')  # it would clean up what is no volume's
        done = self.n1.run(
            ['env', 'PYTHONPATH=%s' % self.lab.repo, self.lab.python, '-W',
             'ignore', '-m', 'tests.contracts.on_node', contract,
             self.n1.directory / 'localclone.conf'], timeout=300)
        failed = json.loads(done.stdout)
        self.assertEqual({}, failed, '\n'.join([
            *failed.values(), done.stderr]))


class StorageContractTest(Case):
    """What the simulated node does, LVM, device-mapper and iSCSI do."""

    def test_storage(self):
        self.run_scenarios('storage')


class ThickContractTest(Case):
    """They do it of a group without a pool."""

    lab_name = base.THICK
    options = base.WITH_THICK

    def test_thick_lvs_at_length(self):
        self.run_scenarios('thick')


class HeadersContractTest(Case):
    """So does cryptsetup."""

    lab_name = base.KEYS
    options = base.WITH_KEYS
    parts = {'keys': True}

    def test_headers_at_length(self):
        self.run_scenarios('headers')
