# SPDX-License-Identifier: Apache-2.0
"""What the options of a backend section may be, and are by default."""

import textwrap

import ddt
from oslo_config import cfg
import testtools

from cinder_localclone.core import copies
from cinder_localclone.service import options

#: Name: minimum, maximum.
BOUNDS = {
    'localclone_region_size_kib': (4, 1024),
    'localclone_max_copy_rate_mib': (0, 100000),
}


@ddt.ddt
class OptsTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf.register_opts(options.localclone_opts)
        self.conf([])

    @ddt.data(*BOUNDS)
    def test_bounds(self, name):
        least, most = BOUNDS[name]
        for value in (least, most):
            self.conf.set_override(name, value)
            self.assertEqual(value, self.conf[name])
        for value in (least - 1, most + 1):
            self.assertRaises(ValueError, self.conf.set_override, name, value)

    @ddt.data(4, 64, 1024)
    def test_the_kernel_takes_every_region_size(self, kib):
        """dm-clone demands a power of two from 8 sectors (4 KiB) to 1 GiB."""
        self.conf.set_override('localclone_region_size_kib', kib)
        geometry = options.geometry(self.conf)
        self.assertEqual(2 * kib, geometry.region_sectors)
        self.assertTrue(1 <= geometry.batch <= geometry.threshold)

    @ddt.data(*options.localclone_opts)
    def test_help_fits_five_lines(self, option):
        """Of the sample configuration, whose generator wraps at 70."""
        self.assertLessEqual(len(textwrap.wrap(option.help, 70)), 5,
                             option.help)

    def test_names_and_units(self):
        for option in options.localclone_opts:
            self.assertTrue(option.dest.startswith('localclone_'))
            self.assertEqual([], option.deprecated_opts, option.dest)
            for unit, words in (('_kib', 'KiB'), ('_mib', 'MiB'),
                                ('_timeout', 'Seconds'),
                                ('_interval', 'Seconds')):
                if option.dest.endswith(unit):
                    self.assertIn(words, option.help)

    def test_pace(self):
        self.assertEqual(copies.Settings(copies.Pace.YIELD, 0),
                         options.pacing(self.conf))
