# SPDX-License-Identifier: Apache-2.0
import ddt
import testtools

from cinder_localclone.core import hosts as host_names


@ddt.ddt
class NamesTest(testtools.TestCase):

    @ddt.data(
        ('n1', ['n1', 'n2'], 'n1'),
        ('n1', ['n1@l', 'n2@l'], 'n1@l'),
        ('n1.rack1', ['n1', 'n2'], 'n1'),
        ('n1', ['n1.rack1', 'n2.rack1'], 'n1.rack1'),
        ('n1.rack1', ['n1.rack2'], None),
        ('n1', ['n1.rack1', 'n1.rack2'], None),
        ('n1.rack1', ['n1', 'n1.rack1'], 'n1.rack1'),
        ('n3', ['n1', 'n2'], None),
        ('', ['', 'n2'], None))
    @ddt.unpack
    def test_match(self, name, hosts, expected):
        self.assertEqual(expected, host_names.Names(hosts).match(name))
