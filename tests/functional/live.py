# SPDX-License-Identifier: Apache-2.0
"""A volume while its instance migrates live."""

from lab.core import instance as instances
from tests.functional import base


class Base(base.LabTest):

    def migrating_volume(self):
        """A volume in use on node1, and attached on node2 as well."""
        volume = self.volume()
        source = self.instance.attach(volume, self.n1)
        expected = self.fill(source)
        writer = source.start_writing()
        destination = self.instance.attach(volume, self.n2, live=True)
        self.assertEqual('node2', instances.home(self.lab, volume))
        self.assertTrue(writer.running)
        return volume, source, destination, writer, expected
