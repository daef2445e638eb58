# SPDX-License-Identifier: Apache-2.0
"""Configuration files that the privileged process was started with."""

import os

import fixtures
from oslo_config import cfg

from cinder_localclone.storage.privsep import configuration

BACKEND = 'lc'


class Configured(fixtures.Fixture):
    """One file, with sections of backends.

    :param sections: options by section; more of ``lc``'s by name
    """

    def __init__(self, sections=None, **options):
        self._sections = {BACKEND: options, **(sections or {})}

    def _setUp(self):
        self.path = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'cinder.conf')
        with open(self.path, 'w') as file:
            for section, options in self._sections.items():
                print('[%s]' % section, file=file)
                for option in options.items():
                    print('%s = %s' % option, file=file)
        conf = cfg.ConfigOpts()
        conf([], project='cinder', default_config_files=[self.path])
        self.useFixture(fixtures.MockPatchObject(
            configuration, '_read', conf))
