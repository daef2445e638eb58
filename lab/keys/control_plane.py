# SPDX-License-Identifier: Apache-2.0
"""A control plane with Barbican, whichever else it has."""

import os
import pathlib

from lab.keys import config as keys_config

HERE = pathlib.Path(__file__).parent


def with_keys(base) -> type:
    """A class of control planes, and Barbican.

    :param base: :class:`lab.core.control_plane.ControlPlane`, or one that
        is derived from it
    """
    class KeysControlPlane(base):
        """As its base, and Barbican."""

        template = base.template + '-keys'
        sources = base.sources + (
            'constraints_keys.txt', HERE / 'config.py',
            HERE / 'control_plane.py')
        databases = base.databases + ('barbican',)
        apis = dict(base.apis, barbican=('barbican.conf', 'lab.keys.wsgi'))
        extra_services = base.extra_services + ('barbican',)

        def _write_configs(self, directory):
            super()._write_configs(directory)
            (directory / 'barbican.conf').write_text(keys_config.barbican())

        def _environment(self, name):
            # Barbican looks for its file there and in /etc, and takes no
            # other.
            home = {'HOME': str(self.directory)} if name == 'barbican' else {}
            return super()._environment(name) | home

        def _make_schemas(self):
            super()._make_schemas()
            self.lab.host_run(
                self.lab.venv / 'bin/barbican-manage', 'db', 'upgrade',
                timeout=300, env=dict(os.environ, PYTHONPATH='',
                                      HOME=str(self.directory)))
    return KeysControlPlane
