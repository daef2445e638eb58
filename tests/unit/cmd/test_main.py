# SPDX-License-Identifier: Apache-2.0
"""The operator's command: its faces, exit codes and configuration."""

import contextlib
import io
import json
import logging
import os
import pathlib
import socket
import subprocess
import sys
import textwrap
import types
from unittest import mock

from cinder.common import config as cinder_config  # noqa: F401
from cinder.volume.drivers import lvm as cinder_lvm
import ddt
import fixtures
from os_brick import privileged as brick
from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_db import options as db_options
from oslo_privsep import priv_context
import sqlalchemy
import testtools

from cinder_localclone.cmd import main
from cinder_localclone.cmd.move import listing as moves_command
from cinder_localclone.core import errors
from cinder_localclone.core import exceptions
from cinder_localclone.core import state
from cinder_localclone.core import version
from cinder_localclone.core.volume import Volume
from cinder_localclone.driver import driver
from cinder_localclone.service import operator as backend
from cinder_localclone.service import options
from cinder_localclone.storage import privsep
from cinder_localclone.storage.privsep import cryptsetup_keys
from cinder_localclone.storage.privsep import memory
from tests.helpers.command_case import Application
from tests.helpers.command_case import CommandCase
from tests.helpers import driver_case
from tests.helpers import inventory_rows
from tests.helpers import specs

ROOT = pathlib.Path(__file__).parents[3]
CONFIGURATION = '''
    [DEFAULT]
    host = node1
    enabled_backends = other, localclone
    state_path = %(directory)s
    transport_url = fake:/
    [database]
    connection = sqlite:///%(directory)s/cinder.sqlite
    [backend_defaults]
    volume_group = shared
    localclone_region_size_kib = 128
    [other]
    volume_driver = cinder.volume.drivers.lvm.LVMVolumeDriver
    [localclone]
    volume_driver = cinder_localclone.driver.LocalCloneDriver
    localclone_metadata_volume_group = fast
    localclone_reconcile_interval = 9
'''
SECOND = '''
    [second]
    volume_driver = cinder_localclone.driver.LocalCloneDriver
    backend_host = elsewhere
    lvm_type = default
'''


class ConfigurationFixture(fixtures.Fixture):
    """A cinder.conf."""

    def __init__(self, text=CONFIGURATION, more=''):
        self._text = text + more

    def _setUp(self):
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.path = os.path.join(self.directory, 'cinder.conf')
        with open(self.path, 'w') as file:
            file.write(textwrap.dedent(
                self._text % {'directory': self.directory}))


class ProcessTest(testtools.TestCase):
    """The real command, as a shell runs it."""

    def run_command(self, *words, path=None):
        # Without -W or PYTHONWARNINGS: as an operator runs it.
        environment = {key: value for key, value in os.environ.items()
                       if key != 'PYTHONWARNINGS'}
        return subprocess.run(
            [sys.executable, '-m', 'cinder_localclone.cmd.main', *words],
            cwd=ROOT, env=dict(environment, PATH=path or os.environ['PATH'],
                               PYTHONDONTWRITEBYTECODE='1'),
            capture_output=True, text=True, timeout=120)

    def test_an_error_is_said_once_and_nothing_else(self):
        conf = self.useFixture(ConfigurationFixture())
        done = self.run_command('--config-file', conf.path, 'move', 'list')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        line, = done.stderr.splitlines()
        self.assertIn('Cinder\'s database can\'t be used', line)
        self.assertIn('no such table', line)
        self.assertNotIn('SELECT', line)

    def with_database(self, **more):
        """Return a configuration whose database has its tables."""
        from cinder_localclone.db import base
        conf = self.useFixture(ConfigurationFixture(**more))
        engine = sqlalchemy.create_engine(
            'sqlite:///%s/cinder.sqlite' % conf.directory)
        self.addCleanup(engine.dispose)
        base.models.BASE.metadata.create_all(engine)
        return conf

    def test_key_manager_without_credentials(self):
        """castellan logs an error of its own."""
        conf = self.with_database(more='''
    localclone_key_auth = key_manager
    [key_manager]
    backend = barbican
''')
        done = self.run_command('--config-file', conf.path, 'encryption',
                                'leftover', 'remove')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        line, = done.stderr.splitlines()
        self.assertIn('The key manager does not accept this service: ', line)
        self.assertIn('Correct [key_manager]', line)

    def test_nothing_to_show(self):
        conf = self.with_database()
        done = self.run_command('--config-file', conf.path, 'move', 'list')
        self.assertEqual((0, '', 'No volume is moving.\n'), (
            done.returncode, done.stdout, done.stderr))
        done = self.run_command(
            '--config-file', conf.path, 'move', 'list', '--json')
        self.assertEqual((0, [], ''), (
            done.returncode, json.loads(done.stdout), done.stderr))

    def test_without_a_sub_command(self):
        done = self.run_command()
        self.assertEqual((2, ''), (done.returncode, done.stdout))
        for name in main.COMMANDS:
            self.assertIn('\n  %s ' % name, done.stderr)

    def test_doctor_with_nothing_at_all(self):
        done = self.run_command(
            '--config-file', '/nonexistent/cinder.conf', 'doctor', '--json',
            path='/nonexistent')
        self.assertEqual((1, ''), (done.returncode, done.stderr))
        rows = json.loads(done.stdout)
        self.assertEqual(['Check', 'Verdict', 'Details', 'Fix'],
                         list(rows[0]))
        self.assertEqual(('cinder.conf', 'FAIL'), (
            rows[0]['Check'], rows[0]['Verdict']))
        self.assertIn('/nonexistent/cinder.conf', rows[0]['Details'])
        checked = {row['Check']: row for row in rows}
        self.assertIn('lvs', checked['commands']['Details'])
        self.assertIn('is not installed', checked['LVM filter']['Details'])
        self.assertIn('udev rules', checked)
        for row in rows:
            self.assertNotIn('Error', row['Details'])

    def test_metrics_of_a_node_on_which_nothing_works(self):
        """Neither a database, nor a bus, nor LVM."""
        conf = self.useFixture(ConfigurationFixture())
        done = self.run_command(
            '--config-file', conf.path, 'metrics', '--json', '--seconds',
            '60', path='/nonexistent')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(
            {'storage': 0, 'database': 0, 'service': 0, 'doctor': 1}, {
                each['Labels']['collector']: each['Value']
                for each in json.loads(done.stdout)
                if each['Name'] == 'localclone_collector_success'})

    def test_restore_imports_neither_database_nor_bus(self):
        conf = self.useFixture(ConfigurationFixture())
        code = '''
            from cinder_localclone.service import operator as backend
            from cinder_localclone.cmd.node import boot as restore
            from cinder_localclone.cmd import main
            from cinder_localclone.service import restore
            import sys
            app = main.LocalClone()
            found = backend.Backend(backend.Settings([sys.argv[1]]))
            found.clones(), found.sessions()
            print(*sorted({name.partition('.')[0] for name in sys.modules}
                          | set(sys.modules)))
        '''
        loaded = subprocess.run(
            [sys.executable, '-c', textwrap.dedent(code), conf.path],
            cwd=ROOT, check=True, capture_output=True, text=True,
            timeout=60).stdout.split()
        self.assertIn('cinder_localclone.service.restore', loaded)
        for slow in ('sqlalchemy', 'oslo_messaging', 'cinder.objects',
                     'cinder.db', 'cinder.rpc', 'rich', 'taskflow'):
            self.assertNotIn(slow, loaded)

    def test_encoding_that_lacks_characters(self):
        """The table is shown all the same, and the reason is said once."""
        code = '''
            from cinder_localclone.cmd import main
            import sys
            class Command(main.LocalClone):
                def run_subcommand(self, argv):
                    self.stdout.write('größe €\\n' * 2)
                    return 0
            main.LocalClone = Command
            sys.exit(main.main(['doctor']))
        '''
        for encoding, shown, lines in (('ascii', 'gr\\xf6\\xdfe', 1),
                                       ('utf-8', 'größe €', 0)):
            done = subprocess.run(
                [sys.executable, '-W', 'ignore', '-c', textwrap.dedent(code)],
                cwd=ROOT, capture_output=True, timeout=60, env=dict(
                    os.environ, PYTHONIOENCODING=encoding))
            err = done.stderr.decode().splitlines()
            self.assertEqual((0, lines), (done.returncode, len(err)), err)
            self.assertIn(shown, done.stdout.decode())
            for line in err:
                self.assertIn('The encoding ascii lacks characters', line)
                self.assertIn('Set LC_ALL=C.UTF-8', line)

    def test_version(self):
        done = self.run_command('--version')
        self.assertEqual(version.VERSION, done.stdout.split()[-1])


class VersionTest(testtools.TestCase):

    def test_no_handler_of_the_log_is_left(self):
        before = logging.getLogger().handlers[:]
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(0, main.main(['complete']))
        self.assertEqual(before, logging.getLogger().handlers)

    def test_of_the_driver(self):
        self.assertEqual(version.VERSION, driver.LocalCloneDriver.VERSION)

    def test_stands_in_one_place(self):
        text = (ROOT / 'pyproject.toml').read_text()
        self.assertIn(
            'version = {attr = "cinder_localclone.core.version.VERSION"}\n',
            text)
        for path in ('pyproject.toml', 'setup.cfg', 'tox.ini'):
            self.assertNotIn(version.VERSION, (ROOT / path).read_text())


@ddt.ddt
class ExitCodeTest(CommandCase):

    def test_done(self):
        self.assertEqual(0, self.run_command('move', 'list')[0])
        self.assertEqual('[]', self.run_command(
            '--json', 'move', 'list')[1].strip())

    @ddt.data([], ['none-such'], ['move', 'list', '--none-such'],
              ['volume', 'show'], ['node'], ['encryption', 'recovery'])
    def test_wrong_command_line(self, words):
        code, out, err = self.run_command(*words)
        self.assertEqual((2, ''), (code, out))
        self.assertIn('usage:', err)

    @ddt.data(errors.CommandError('no such thing'),
              exceptions.PeerUnreachable(host='h', method='m', seconds=1),
              RuntimeError('no such thing'))
    def test_error(self, error):
        self.backend.db.moves.readable_moves.side_effect = error
        self.assertEqual((1, '', '%s\n' % error),
                         self.run_command('move', 'list'))

    def test_noun_without_a_verb(self):
        for words, said in (
                (['node', 'lst'], '"node" needs one of these words next: '
                 'check, drain, forget, list, restore, show, unlock'),
                (['encryption', 'recovery'],
                 '"encryption recovery" needs one of these words next: key'),
                (['reencryption'], ': pause, resume, start\n'),
                (['none-such'], '"none-such" is not a command; --help')):
            self.assertIn(said, self.run_command(*words)[2])

    def test_traceback_if_asked_for(self):
        self.backend.db.moves.readable_moves.side_effect = RuntimeError(
            'no such thing')
        code, _out, err = self.run_command('move', 'list', '--debug')
        self.assertEqual(1, code)
        self.assertIn('Traceback', err)

    def test_interrupted(self):
        self.backend.db.moves.readable_moves.side_effect = KeyboardInterrupt
        self.assertEqual((130, '', ''), self.run_command('move', 'list'))

    def test_interrupted_while_it_begins(self):
        self.useFixture(fixtures.MockPatchObject(
            Application, '__init__', side_effect=KeyboardInterrupt))
        self.assertEqual(130, self.run_command('move', 'list')[0])

    def test_reader_that_has_gone(self):
        self.backend.db.moves.readable_moves.side_effect = BrokenPipeError
        self.assertEqual(141, self.run_command('move', 'list')[0])

    def test_abort_without_a_move(self):
        self.backend.volume.return_value = None, None
        code, _out, err = self.run_command('move', 'abort', 'v')
        self.assertEqual(1, code)
        self.assertIn('Volume v is not moving', err)

    def test_log_file(self):
        path = os.path.join(self.useFixture(fixtures.TempDir()).path, 'log')
        self.backend.db.moves.readable_moves.side_effect = RuntimeError('oh')
        self.run_command('--log-file', path, 'move', 'list')
        with open(path) as file:
            self.assertIn('oh', file.read())

    def test_repair_of_all(self):
        """Nodes that are down are named, and not asked."""
        there = inventory_rows.row('v', 'a@l')
        lost = inventory_rows.row('w', 'b@l')
        self.backend.nodes.return_value = {'a@l': True, 'b@l': False}
        self.backend.db.volumes.volumes_of.side_effect = {
            'a@l': [there], 'b@l': [lost]}.get
        self.backend.volume.side_effect = {
            'v': (there, None), 'w': (lost, None)}.get
        self.backend.ask.return_value = ['removed LV x'], ''
        code, out, _err = self.run_command('volume', 'repair', '--json')
        self.assertEqual(1, code)
        self.assertEqual(
            [('v', 'a@l', 'removed LV x'),
             ('w', 'b@l', 'not asked: its service is down')],
            [tuple(row.values()) for row in json.loads(out)])
        self.backend.ask.assert_called_once_with('a@l', 'repair', 'v')

    def test_repair_of_all_is_of_one_backend(self):
        """Nodes of another one are not "down"."""
        self.backend.host = 'a@l'
        self.backend.nodes.return_value = {'a@l': True}
        self.backend.db.volumes.volumes_of.return_value = []
        there = inventory_rows.row('v', 'b@m')
        move = types.SimpleNamespace(
            volume_id='v', source='a@m', destination='b@m')
        self.backend.db.moves.readable_moves.return_value = [move]
        self.backend.volume.return_value = there, move
        code, out, _err = self.run_command('volume', 'repair', '--json')
        self.assertEqual((0, []), (code, json.loads(out)))

    def test_repair_without_source(self):
        move = types.SimpleNamespace(destination='b@l')
        self.backend.volume.return_value = None, move
        code, out, _err = self.run_command(
            'volume', 'repair', '--json', '--without-source', 'v')
        self.assertEqual((0, 'b@l'), (code, json.loads(out)[0]['Where']))
        call = self.backend.call
        call.assert_called_once_with('b@l', 'open_without_source', 'v')
        for words in ([], ['--dry-run', 'v']):
            self.assertEqual(1, self.run_command(
                'volume', 'repair', '--without-source', *words)[0])
        self.backend.volume.return_value = None, None
        code, _out, err = self.run_command(
            'volume', 'repair', '--without-source', 'v')
        self.assertEqual(1, code)
        self.assertIn('not moving', err)
        call.assert_called_once()

    def test_a_node_that_does_not_answer(self):
        there = Volume.of(driver_case.volume(host='a@l#p'))
        self.backend.nodes.return_value = {'a@l': True}
        self.backend.volume.return_value = there, None
        self.backend.ask.return_value = None, 'did not answer'
        for words in (['volume', 'show', 'v'], ['volume', 'repair', 'v']):
            code, out, _err = self.run_command(*words)
            self.assertEqual(1, code)
            self.assertIn('did not answer', out)


class WatchTest(testtools.TestCase):

    @staticmethod
    def move():
        token = state.Token(state.Phase.MIGRATING, 'n',
                            state.Geometry(128, 32, 8))
        return state.Move('v', 's', token, True, 'a@l', 'b@l', 'x', 'y', 1)

    def test_until_nothing_moves(self):
        made = mock.MagicMock()
        made.ask.return_value = None, 'did not answer'
        made.db.moves.readable_moves.side_effect = [[self.move()], []]
        self.useFixture(fixtures.MockPatchObject(moves_command.time, 'sleep'))
        with contextlib.redirect_stderr(io.StringIO()) as err:
            moves_command.watch(made, None)
        self.assertIn('v a@l > b@l', err.getvalue())
        self.assertIn('done', err.getvalue())

    def test_at_most(self):
        made = mock.MagicMock()
        made.db.moves.readable_moves.return_value = []
        with contextlib.redirect_stderr(io.StringIO()):
            moves_command.watch(made, 0.001)

    def test_no_time_is_not_for_ever(self):
        made = mock.MagicMock()
        made.db.moves.readable_moves.return_value = [self.move()]
        made.ask.return_value = None, 'did not answer'
        with mock.patch.object(moves_command.time, 'sleep', side_effect=(
                AssertionError('it waits'))), contextlib.redirect_stderr(
                io.StringIO()):
            moves_command.watch(made, 0)

    def test_deleted_volume_was_not_copied(self):
        made = mock.MagicMock()
        made.ask.return_value = None, 'did not answer'
        made.db.moves.readable_moves.side_effect = [[self.move()], []]
        made.db.volumes.volume.return_value = None
        self.useFixture(fixtures.MockPatchObject(moves_command.time, 'sleep'))
        with contextlib.redirect_stderr(io.StringIO()) as err:
            moves_command.watch(made, None)
        made.db.volumes.volume.assert_called_once_with('v')
        self.assertIn('the volume is deleted', err.getvalue())
        self.assertNotIn('done', err.getvalue())

    def test_what_stands_beside_a_bar(self):
        row = {'Remark': '', 'MiB/s': 2.5, 'Seconds left': 7,
               'Pace': 'limited'}
        self.assertEqual('2.5 MiB/s  7 s left  limited',
                         moves_command._rest(row))
        self.assertEqual('2.5 MiB/s  7 s left  ', moves_command._rest(
            dict(row, Pace=None)))
        self.assertEqual('', moves_command._rest(dict(row, **{'MiB/s': None})))
        self.assertEqual('oh', moves_command._rest(dict(row, Remark='oh')))


class SettingsTest(testtools.TestCase):

    def settings(self, *args, **kwargs):
        return backend.Settings([self.useFixture(
            ConfigurationFixture(*args, **kwargs)).path])

    def test_section(self):
        settings = self.settings()
        section, = settings.sections().values()
        section.check()
        self.assertEqual(
            ('shared', 'fast', 128, 9, 'auto', 30),
            (section.volume_group, section.localclone_metadata_volume_group,
             section.localclone_region_size_kib,
             section.localclone_reconcile_interval, section.lvm_type,
             section.localclone_command_timeout))
        self.assertEqual(('node1', 60),
                         (settings.host, settings.rpc_timeout))

    def test_value_that_cannot_be(self):
        section, = self.settings(
            more='    localclone_max_copies_in = many\n'
        ).sections().values()
        self.assertRaises(cfg.ConfigFileValueError, section.check)

    def test_defaults_are_those_of_cinder(self):
        theirs = {option.dest: option.default
                  for option in cinder_lvm.volume_opts}
        for option in backend.SECTION_OPTS:
            if option.dest in theirs:
                self.assertEqual(theirs[option.dest], option.default)
        conf = backend.Settings([]).rpc_timeout, cfg.CONF.host
        self.assertEqual((60, socket.gethostname()), conf)
        self.assertEqual({'volume_group', 'lvm_type'}, {
            option.dest for option in backend.SECTION_OPTS} & set(theirs))


@ddt.ddt
class BackendTest(testtools.TestCase):

    def settings(self, more=''):
        text = CONFIGURATION
        if more:
            text = text.replace('other, localclone', 'localclone, second')
        return backend.Settings([self.useFixture(
            ConfigurationFixture(text, more)).path])

    def test_the_only_one(self):
        found = backend.Backend(self.settings())
        self.assertEqual(('localclone', 'node1@localclone'),
                         (found.name, found.host))
        lvm = found.lvm()
        self.assertEqual(('shared', 'shared-pool', 'fast'), (
            lvm.group, lvm.pool, lvm.metadata_group))
        self.assertTrue(found.sessions())

    def test_a_named_one(self):
        found = backend.Backend(self.settings(SECOND), 'second')
        self.assertEqual('elsewhere@second', found.host)
        self.assertIsNone(found.lvm().pool)

    @ddt.data(
        ('', 'missing', '"missing"'), (SECOND, None, '--backend'))
    @ddt.unpack
    def test_not_clear(self, more, name, words):
        error = self.assertRaises(
            errors.CommandError, backend.Backend, self.settings(more), name)
        self.assertIn(words, str(error))

    def test_no_configuration_at_all(self):
        """Neither is "enabled", nor is any section missing."""
        for error, said in (
                (FileNotFoundError, 'There is no /etc/cinder/cinder.conf. '
                 'Pass --config-file'),
                (PermissionError, '/etc/cinder/cinder.conf can\'t be read by '
                 'this user. Run the command with sudo.')):
            with mock.patch.object(backend.os, 'stat', side_effect=error):
                error = self.assertRaises(
                    errors.CommandError, backend.Backend,
                    backend.Settings([]))
            self.assertTrue(str(error).startswith(said), error)

    def test_configuration_that_is_not_for_this_user(self):
        error = cfg.ConfigFilesPermissionDeniedError(['/x', '/y'])
        with mock.patch.object(cfg.ConfigOpts, '__call__', side_effect=error):
            error = self.assertRaises(
                errors.CommandError, backend.Settings, ['/x', '/y'])
        self.assertEqual('/x, /y can\'t be read by this user. Run the command '
                         'with sudo.', str(error))

    def test_configuration_in_another_encoding(self):
        error = UnicodeDecodeError('ascii', b'\xc3', 0, 1, 'no')
        with mock.patch.object(cfg.ConfigOpts, '__call__', side_effect=error):
            error = self.assertRaises(
                errors.CommandError, backend.Settings, ['x'])
        self.assertIn('with the encoding ascii. Set LC_ALL', str(error))

    def test_name_in_another_encoding(self):
        found, db = self.connected()
        error = self.assertRaises(
            errors.CommandError, found.find, 'gr\udcc3\udcb6sse')
        self.assertIn('Set LC_ALL=C.UTF-8, or pass the ID', str(error))
        db.inventory.ids_named.assert_not_called()
        db.inventory.ids_named.return_value = ['v']
        self.assertEqual('v', found.find('größe'))

    @ddt.data((0, True), (1000, False))
    @ddt.unpack
    def test_root(self, user, allowed):
        self.useFixture(fixtures.MockPatchObject(
            backend.os, 'geteuid', return_value=user))
        self.useFixture(fixtures.MockPatchObject(memory, 'protect'))
        mode = self.useFixture(fixtures.MockPatchObject(
            priv_context.PrivContext, 'set_client_mode', autospec=True)).mock
        if allowed:
            backend.act_as_root(None)
            # A helper may not be found: root's PATH lacks the environment.
            self.assertEqual(
                [mock.call(each, False) for each in (
                    privsep.default, cryptsetup_keys.context, brick.default,
                    # os-brick 6, of Cinder 27, has one.
                    *filter(None, [getattr(
                        brick, 'brick_privsep_hide_output', None)]))],
                mode.mock_calls)
        else:
            self.assertRaises(errors.CommandError, backend.act_as_root, None)
            mode.assert_not_called()

    @ddt.data(
        ('mysql+pymysql://c@h/c', None, 'connect_timeout=5&read_timeout=15'),
        ('mysql+pymysql://c@h/c', 'a=b',
         'a=b&connect_timeout=5&read_timeout=15'),
        ('postgresql://c@h/c', None, 'connect_timeout=5'),
        ('sqlite://', None, ''))
    @ddt.unpack
    def test_a_database_that_is_down_is_not_waited_for(
            self, connection, before, after):
        conf = cfg.ConfigOpts()
        conf.register_opts(db_options.database_opts, 'database')
        conf.set_override('connection', connection, 'database')
        conf.set_override('connection_parameters', before, 'database')
        self.useFixture(fixtures.MockPatchObject(cfg, 'CONF', conf))
        found = backend.Backend(self.settings())
        found.load_cinder()
        found.load_cinder()
        self.assertEqual(0, conf.database.max_retries)
        self.assertEqual(after, conf.database.connection_parameters or '')

    def connected(self):
        """A backend whose database and message bus are made up."""
        found = backend.Backend(self.settings())
        self.useFixture(fixtures.MockPatchObject(found, 'load_cinder'))
        self.useFixture(fixtures.MockPatch('cinder.rpc.init'))
        return found, self.useFixture(fixtures.MockPatch(
            'cinder_localclone.db.database.database')
        ).mock.return_value

    def test_nodes(self):
        found, db = self.connected()
        db.services.alive_by_host.return_value = {
            'b@localclone': False, 'a@localclone': True, 'c@other': True}
        self.assertEqual([('a@localclone', True), ('b@localclone', False)],
                         list(found.nodes().items()))

    def test_ask(self):
        found, _db = self.connected()
        peers = specs.port('peers')
        self.useFixture(fixtures.MockPatch(
            'cinder_localclone.service.rpc.Client',
            mock.Mock(return_value=peers)))
        peers.inspect.return_value = {'host': 'h'}
        self.assertEqual(({'host': 'h'}, ''), found.ask('h', 'inspect', 'v'))
        peers.inspect.assert_called_once_with('h', 'v')
        peers.inspect.side_effect = exceptions.PeerUnreachable(
            host='h', method='inspect', seconds=8)
        answer, problem = found.ask('h', 'inspect', 'v')
        self.assertIsNone(answer)
        self.assertIn('did not answer', problem)

    def test_volume(self):
        found, db = self.connected()
        db.volumes.volume.return_value = None
        db.moves.move_of.return_value = None
        db.moves.pending_cleanups.return_value = []
        error = self.assertRaises(errors.CommandError, found.volume, 'v')
        self.assertIn('There is no volume v', str(error))
        db.moves.move_of.return_value = 'move'
        self.assertEqual((None, 'move'), found.volume('v'))
        db.moves.move_of.return_value = None
        db.moves.pending_cleanups.return_value = ['move']
        self.assertEqual((None, None), found.volume('v'))

    def test_of_a_volume(self):
        volume = inventory_rows.row('v', 'a@l', name='lv')
        move = types.SimpleNamespace(source='b@l', destination=None)
        self.assertEqual(('lv', 'a@l'), (
            backend.lv_of(volume), backend.home_of(volume)))
        self.assertEqual((None, None), (
            backend.lv_of(None), backend.home_of(None)))
        self.assertEqual(['a@l'], backend.hosts_of(volume, None))
        self.assertEqual(['b@l'], backend.hosts_of(volume, move))
        over = types.SimpleNamespace(cleanup_node='c@l')
        self.assertEqual(['a@l', 'c@l'],
                         backend.hosts_of(volume, None, [over]))


class InWordsTest(testtools.TestCase):

    def test_database(self):
        error = db_exception.DBError(Exception(
            'gone\n[SQL: SELECT 1]\n(Background on this error at: x)'))
        self.assertEqual(
            'Cinder\'s database can\'t be used: gone. Check the database '
            'server, and [database] connection in cinder.conf.',
            errors.in_words(error))

    def test_others(self):
        self.assertEqual('x is not installed', errors.in_words(
            FileNotFoundError(2, 'No such file', 'x')))
        self.assertEqual("[Errno 2] No such file: '/x/y'", errors.in_words(
            FileNotFoundError(2, 'No such file', '/x/y')))
        self.assertEqual('ValueError', errors.in_words(ValueError()))

    def test_group_that_is_missing(self):
        error = exceptions.CommandFailed(
            command='lvs --reportformat json --units b', code=5,
            stderr='  Volume group "shared" not found\n  Cannot process it')
        self.assertEqual(
            'There is no volume group shared on this node. Create it '
            '(vgcreate), or correct volume_group and '
            'localclone_metadata_volume_group in cinder.conf.',
            errors.in_words(error))

    def test_package_that_is_missing(self):
        error = self.assertRaises(
            ModuleNotFoundError, __import__, 'none_such')
        self.assertEqual(
            'The Python package none_such is not installed in the environment '
            'of this command. Install it beside Cinder.',
            errors.in_words(error))

    def test_encoding(self):
        error = self.assertRaises(UnicodeError, 'ö'.encode, 'ascii')
        self.assertIn('is too narrow: set LC_ALL=C.UTF-8.',
                      errors.in_words(error))

    def test_what_else_was_wrong(self):
        self.assertEqual('oh', errors.in_words(ValueError('oh')))

    def test_every_option_of_the_driver_is_read(self):
        self.assertTrue(
            set(options.localclone_opts) <= set(backend.SECTION_OPTS))


class WrongConfigurationTest(CommandCase):
    """The text says which file is wrong, and what to do."""

    def test_words(self):
        directory = self.useFixture(fixtures.TempDir()).path
        self.backend.nodes.side_effect = lambda: backend.Backend(
            backend.Settings([self.path]))
        for text, said in (
                ('[broken\n', '[broken\'. Correct cinder.conf, or pass '
                 '--config-file.'),
                (None, '%s does not exist. Correct --config-file.'),
                ('', 'No enabled backend in %s uses this driver.')):
            self.path = os.path.join(directory, 'a.conf')
            if text is None:
                os.unlink(self.path)
            else:
                with open(self.path, 'w') as file:
                    file.write(text)
            code, out, err = self.run_command('node', 'check')
            self.assertEqual((1, ''), (code, out))
            self.assertIn(said.replace('%s', self.path), err)
            self.assertEqual(1, len(err.splitlines()), err)

    def test_invalid_value(self):
        conf = self.useFixture(ConfigurationFixture(
            more='    localclone_max_copies_in = many\n'))
        section, = backend.Settings([conf.path]).sections().values()
        self.backend.nodes.side_effect = section.check
        _code, _out, err = self.run_command('node', 'check')
        self.assertIn('localclone_max_copies_in in %s is not valid' % (
            conf.path), err)
        self.assertIn('\'many\'. Correct cinder.conf', err)

    def test_url_of_the_database(self):
        for url in 'c:hunter2@h/c', 'mysql+none://c:hunter2@h/c':
            self.backend.nodes.side_effect = (
                lambda url=url: sqlalchemy.create_engine(url))
            _code, _out, err = self.run_command('node', 'check')
            self.assertIn('Correct [database] connection in cinder.conf.', err)
            self.assertNotIn('hunter2', err)

    def test_file(self):
        self.backend.nodes.side_effect = lambda: open('/nonexistent/x')
        self.assertEqual(
            (1, '', '/nonexistent/x: No such file or directory\n'),
            self.run_command('node', 'check'))
