# SPDX-License-Identifier: Apache-2.0
"""The wheel has all that an operator needs; sample files are up to date."""

import io
import pathlib
import shutil
import subprocess
import sys
import zipfile

import ddt
import fixtures
from oslo_config import cfg
from oslo_config import generator
import testtools

from cinder_localclone.core import version
from cinder_localclone.nova import options as nova_options
from cinder_localclone.service import options
from tests.helpers import tree

#: Files of etc/ for whoever builds the package.
FOR_THE_BUILD = {'cinder/localclone-config-generator.conf',
                 'nova/localclone-config-generator.conf'}


@ddt.ddt
class SampleTest(testtools.TestCase):

    @ddt.data(('cinder', 'cinder_localclone', options.list_opts),
              ('nova', 'cinder_localclone.nova', nova_options.list_opts))
    @ddt.unpack
    def test_has_the_present_options(self, project, namespace, list_opts):
        """``tox -e genconfig`` writes both files."""
        directory = tree.ROOT / 'etc' / project
        self.useFixture(fixtures.MockPatchObject(
            generator, '_get_raw_opts_loaders',
            lambda names: [(name, list_opts) for name in names]))
        conf = cfg.ConfigOpts()
        generator.register_cli_opts(conf)
        conf(['--config-file',
              str(directory / 'localclone-config-generator.conf')])
        self.assertEqual([namespace], conf.namespace)
        made = io.StringIO()
        generator.generate(conf, made)
        self.assertEqual(
            made.getvalue(),
            (directory / 'localclone.conf.sample').read_text())


class WheelTest(testtools.TestCase):

    def test_of_an_archive_without_git(self):
        source = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('cinder_localclone', 'etc'):
            shutil.copytree(tree.ROOT / name, source / name,
                            ignore=shutil.ignore_patterns('__pycache__'))
        for name in ('LICENSE', 'MANIFEST.in', 'README.rst', 'pyproject.toml',
                     'requirements.txt', 'setup.cfg'):
            shutil.copy(tree.ROOT / name, source)
        subprocess.run(
            [sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps',
             '--no-build-isolation', '--disable-pip-version-check',
             '-w', 'dist', '.'],
            cwd=source, check=True, capture_output=True, timeout=240)
        wheel, = (source / 'dist').iterdir()
        self.assertEqual('cinder_localclone-%s-py3-none-any.whl'
                         % version.VERSION, wheel.name)
        names = zipfile.ZipFile(wheel).namelist()
        modules = {str(path.relative_to(tree.ROOT))
                   for path in (tree.ROOT / 'cinder_localclone').rglob('*')
                   if path.is_file() and '__pycache__' not in path.parts}
        self.assertEqual(modules, {name for name in names if name.startswith(
            'cinder_localclone/')})
        etc = tree.ROOT / 'etc'
        self.assertEqual(
            sorted(path.name for path in etc.rglob('*') if path.is_file()
                   and str(path.relative_to(etc)) not in FOR_THE_BUILD),
            sorted(pathlib.PurePath(name).name for name in names
                   if '.data/data/' in name))
