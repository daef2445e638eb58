# SPDX-License-Identifier: Apache-2.0
"""What the options of a backend section may be, and are by default."""

import ddt
from oslo_config import cfg
import testtools

from cinder_localclone.core import copies
from cinder_localclone.service import options

#: Name: minimum, maximum.
BOUNDS = {
    'localclone_region_size': (4, 1024),
    # What the defaults come to with the smallest regions is allowed.
    'localclone_hydration_batch': (1, 512),
    'localclone_hydration_threshold': (1, 8192),
    'localclone_pace_floor': (1, 10000),
    'localclone_max_rate_in': (0, 100000),
    'localclone_wake_interval': (0, 10),
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
    def test_defaults_are_allowed(self, kib):
        self.conf.set_override('localclone_region_size', kib)
        geometry = options.geometry(self.conf)
        self.conf.set_override('localclone_hydration_batch', geometry.batch)
        self.conf.set_override('localclone_hydration_threshold',
                               geometry.threshold)
        self.assertEqual(geometry, options.geometry(self.conf))

    def test_pace(self):
        self.assertEqual(copies.Settings(copies.Pace.YIELD, 10 << 20, 0, 0.05),
                         options.pacing(self.conf))
