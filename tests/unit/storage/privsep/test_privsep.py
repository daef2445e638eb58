# SPDX-License-Identifier: Apache-2.0
"""What the privileged daemon can be asked for."""

import inspect
import pathlib
import pkgutil

import ddt
from oslo_rootwrap import filters
import testtools

from cinder_localclone.storage import privsep
from tests.helpers.entry_points import ENTRY_POINTS
from tests.helpers.entry_points import entry_points


@ddt.ddt
class EntryPointsTest(testtools.TestCase):

    def test_modules(self):
        self.assertEqual(set(ENTRY_POINTS), {
            each.name for each in pkgutil.iter_modules(privsep.__path__)})

    @ddt.data(*ENTRY_POINTS)
    def test_entry_points(self, module):
        self.assertEqual(ENTRY_POINTS[module], set(entry_points(module)))

    @ddt.data(*ENTRY_POINTS)
    def test_by_name_typed_and_described(self, module):
        for name, function in entry_points(module).items():
            self.assertEqual(
                ('cinder_localclone.storage.privsep.' + module, name),
                (function.__module__, function.__name__))
            signature = inspect.signature(function)
            for each in (signature.return_annotation, *(
                    parameter.annotation
                    for parameter in signature.parameters.values())):
                self.assertIsNot(inspect.Signature.empty, each, name)
            self.assertTrue(function.__doc__, name)


#: The first of the two files of Red Hat's unit.
DIST = '/usr/share/cinder/cinder-dist.conf'
SOCKET = '/tmp/tmpa1b2c3_d/privsep.sock'  # tempfile.mkdtemp()


@ddt.ddt
class RootwrapTest(testtools.TestCase):
    """Which configuration a daemon of root's may be started with."""

    @ddt.data(
        ('/etc/cinder/cinder.conf', True), ('/etc/a..b/c.conf', True),
        ('/etc/../tmp/evil.conf', False), ('/etc/..', False),
        ('/etc/cinder/../../tmp/evil.conf', False),
        ('/etc/cinder/..', False), ('/tmp/evil.conf', False))
    @ddt.unpack
    def test_configuration_below_etc(self, path, allowed):
        self._each(path, SOCKET, allowed)

    @ddt.data('/tmp/x', '/tmp/tmpa1b2c3_d/../../etc/x/privsep.sock',
              '/tmp/tmpa1b2c3_d/privsep.sock/x', '/tmp/tmpa1/privsep.sock')
    def test_socket_of_privseps(self, path):
        self._each('/etc/cinder/cinder.conf', path, False)

    def test_configuration_of_red_hats_unit(self):
        self._each(DIST, SOCKET, False)
        for first in ('/usr/share/cinder/cinder-distXconf', '/tmp/x.conf',
                      DIST + '/../../x.conf'):
            self._match(['--config-file', first, '--config-file',
                         '/etc/cinder/cinder.conf'], SOCKET, False)

    def _each(self, path, socket, allowed):
        options = ['--config-file', path]
        self._match(options, socket, allowed)
        self._match(['--config-file', DIST, *options], socket, allowed)

    def _match(self, options, socket, allowed):
        path = pathlib.Path(privsep.__file__).resolve().parents[3].joinpath(
            'etc/cinder/rootwrap.d/localclone.filters')
        found = [filters.RegExpFilter(*line.split(': RegExpFilter, ')[1].split(
            ', ')) for line in path.read_text().splitlines()
            if ': RegExpFilter, ' in line]
        self.assertEqual(4, len(found))
        for context in ('default', 'cryptsetup_keys.context'):
            self.assertEqual(allowed, any(each.match([
                'privsep-helper', *options, '--privsep_context',
                'cinder_localclone.storage.privsep.' + context,
                '--privsep_sock_path', socket]) for each in found), options)
