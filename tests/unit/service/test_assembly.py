# SPDX-License-Identifier: Apache-2.0
"""A service is built from its configuration; its lock, its loops."""

import dataclasses
import signal
from unittest import mock

from cinder import exception
from cinder.volume import configuration
from cinder.volume.drivers import lvm as cinder_lvm
import ddt
import fixtures
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_service import service as oslo_service
import testtools
from tooz import coordination

from cinder_localclone.core import copies
from cinder_localclone.core import events
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.moves import cleanup
from cinder_localclone.moves import copying
from cinder_localclone.service import assembly
from cinder_localclone.service import options
from cinder_localclone.storage import handles
from cinder_localclone.storage import logical_volumes
from cinder_localclone.volumes import uncommitted
from tests.helpers import specs
from tests.helpers import storage_parts

HOST = 'n1@l'
#: All that a node needs, as ``dmsetup targets`` says it.
TARGETS = 'linear           v1.4.0\nclone            v1.0.0\n'


class Base(testtools.TestCase):

    def conf(self, **values):
        conf = configuration.Configuration(
            cinder_lvm.volume_opts + options.localclone_opts,
            config_group=configuration.SHARED_CONF_GROUP)
        for name, value in values.items():
            self.addCleanup(cfg.CONF.clear_override, name,
                            configuration.SHARED_CONF_GROUP)
            cfg.CONF.set_override(name, value,
                                  configuration.SHARED_CONF_GROUP)
        return conf


@ddt.ddt
class GroupTest(Base):

    def open(self, error=None, **values):
        self.lvm = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.service.assembly.brick_lvm.LVM',
            side_effect=error)).mock
        return assembly.open_group(self.conf(**values), 'execute')

    @ddt.data(('auto', 'thin'), ('thin', 'thin'), ('default', 'default'))
    @ddt.unpack
    def test_type(self, configured, used):
        group = self.open(lvm_type=configured)
        self.assertIs(self.lvm.return_value, group)
        self.assertEqual(used, self.lvm.call_args.kwargs['lvm_type'])

    @ddt.data(('none', None), ('/etc/x', '/etc/x'))
    @ddt.unpack
    def test_lvm_configuration(self, configured, used):
        self.open(lvm_conf_file=configured)
        self.assertEqual(used, self.lvm.call_args.kwargs['lvm_conf'])

    @ddt.data(exception.VolumeGroupNotFound(vg_name='g'),
              processutils.ProcessExecutionError(
                  stderr='Volume group "g" not found'))
    def test_missing_group_says_what_to_do(self, error):
        raised = self.assertRaises(
            exception.VolumeBackendAPIException, self.open, error,
            volume_group='g')
        self.assertIn('no volume group "g"', str(raised))
        self.assertIn('vgcreate', str(raised))

    def test_other_errors_keep_their_reason(self):
        raised = self.assertRaises(
            exception.VolumeBackendAPIException, self.open,
            processutils.ProcessExecutionError(stderr='pool is broken\n'))
        self.assertIn('pool is broken', str(raised))


@ddt.ddt
class AssembleTest(Base):

    def assemble(self, pool='pool', **values):
        return assembly.assemble(self.conf(**values), HOST, 'backend', pool)

    @staticmethod
    def sweep(service, zeroes=True, allocated=0):
        """What LVM and device-mapper show."""
        service.node.handles.devices = dict
        service.lvm.check_groups = lambda lvs: None
        service.lvm.own_block = lambda: 512
        service.lvm.release_map = mock.Mock(return_value=False)
        service.lvm.lvs = lambda: {'pool': lvm_reports.LogicalVolume(
            'g', 'pool', 1 << 30, '', frozenset(), zeroes=zeroes,
            allocated=allocated)}
        service.lvm.space = lambda lvs: (
            lvm_reports.FreeSpace(lvs['pool'].size, 0, False),
            lvm_reports.Capacity(lvs['pool'].size, 0, 0, 0))

    def test_from_the_configuration(self):
        service = self.assemble(
            volume_group='g', localclone_metadata_volume_group='fast',
            target_ip_address='192.0.2.1', localclone_region_size_kib=128,
            localclone_max_copies_in=5, localclone_pace='spare',
            localclone_max_copy_rate_mib=7)
        self.assertEqual(('g', 'pool', 'fast', HOST), (
            service.lvm.group, service.lvm.pool,
            service.lvm.metadata_group, service.lvm.host))
        self.assertEqual(256, service.node.geometry.region_sectors)
        self.assertEqual(copies.Limits(into=5), service.node.limits)
        self.assertEqual(
            copies.Settings(copies.Pace.SPARE, 7 << 20),
            service.node.pacing)
        self.assertIn('192.0.2.1', service.addresses)
        self.assertIn('fd00::7', self.assemble(
            localclone_addresses=['fd00::7']).addresses)
        self.assertIs(service.lvm, service.node.lvm)
        self.assertIs(service.node, service.reconciler.node)

    def test_stripes(self):
        free = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.storage.privsep.lvm.free_of_disks',
            return_value=[1, 1])).mock
        service = self.assemble(None, volume_group='g',
                                localclone_thick_stripes=3)
        self.assertEqual(3, service.lvm.stripes)
        problem, = service._pool_problems({})
        self.assertIn('has 2 disks', problem)
        free.return_value = [1, 1, 1]
        self.assertEqual([], service._pool_problems({}))

    def test_metadata_is_beside_the_volumes_by_default(self):
        self.assertEqual('g', self.assemble(
            volume_group='g').lvm.metadata_group)

    def test_what_cannot_be_configured(self):
        self.assertRaises(exception.InvalidConfigurationValue, self.assemble,
                          localclone_region_size_kib=65)

    @ddt.data('volume', 'volume-%s-%s', 'volume-%.8s', 'a/%s', '-%s', '%(a)s',
              'localclone-%s', '_snapshot-%s', 'x' * 100 + '%s')
    def test_names_of_lvs_that_nothing_tells_apart(self, template):
        with mock.patch.object(cfg.CONF, 'volume_name_template', template,
                               create=True):
            raised = self.assertRaises(
                exception.InvalidConfigurationValue, self.assemble)
        self.assertIn('volume_name_template', str(raised))

    @ddt.data('volume-%s', 'vol_%s.disk', '%s', 'ab%sab')
    def test_names_of_lvs_that_have_the_id_in_them(self, template):
        names.check_template(template)

    @ddt.data(
        ((), ()), (('targets',), ('CONFIG_DM_CLONE',)),
        (('zeroes',), ('lvchange -Zy g/pool',)),
        (('initiator',), ('initiatorname.iscsi',)),
        (('targets', 'zeroes', 'initiator'),
         ('CONFIG_DM_CLONE', 'initiatorname', 'lvchange')))
    @ddt.unpack
    def test_problems_are_logged_and_told_to_peers(self, lacking, words):
        service = self.assemble(volume_group='g')
        targets = TARGETS.replace(
            'clone ', 'snapshot ' if 'targets' in lacking else 'clone ')
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.service.assembly.dmsetup.targets',
            lambda timeout: targets))
        self.sweep(service, zeroes='zeroes' not in lacking)
        service.node.sessions.initiator = (
            lambda: '' if 'initiator' in lacking else 'iqn.x')
        service.node.crypt.note_directories = lambda: []
        with mock.patch.object(events, 'LOG') as log:
            service.check()
        _free, problems, _to_wipe = service.readiness()
        self.assertEqual(len(words), len(problems))
        for word, problem in zip(words, problems):
            self.assertIn(word, problem)
        self.assertEqual(problems, [
            call.args[1]['problem'] for call in log.error.call_args_list])

    def test_what_is_left_of_a_map_is_released(self):
        service = self.assemble(volume_group='g')
        self.sweep(service)
        self.useFixture(fixtures.MonkeyPatch(
            'cinder_localclone.service.assembly.dmsetup.targets',
            lambda timeout: TARGETS))
        service.node.sessions.initiator = lambda: 'iqn.x'
        noted = service.node.crypt.note_directories = mock.Mock(
            spec=service.node.crypt.note_directories, return_value=[])
        with mock.patch.object(assembly, 'LOG') as log:
            noted.return_value = ['/before']
            service.check()
            self.assertEqual('/before', log.warning.call_args.args[1])
            noted.side_effect = OSError('no vgs')
            service.check()
            self.assertIn('no vgs', str(log.warning.call_args.args[1]))
            noted.side_effect, noted.return_value = None, []
            log.reset_mock()
            service.lvm.release_map.reset_mock()
            service.check()
            service.lvm.release_map.assert_called_once_with()
            self.assertEqual([], log.mock_calls)
            service.lvm.release_map.side_effect = OSError('broken')
            service.check()
        self.assertEqual('broken', str(
            log.warning.call_args.args[1]['error']))

    def test_a_pool_that_was_changed_is_noticed_at_once(self):
        service = self.assemble(volume_group='g')
        for zeroes, problems in ((True, 0), (False, 1), (True, 0)):
            self.sweep(service, zeroes)
            self.assertEqual(problems, len(service.readiness()[1]))
        service.lvm.lvs = dict  # there is no such pool
        self.assertEqual(1, len(service.readiness()[1]))

    @ddt.data('pool', None)
    def test_each_thing_is_asked_once(self, pool):
        """Commands that take long in a large group, for each move."""
        service = self.assemble(pool, volume_group='g')
        asked = mock.Mock()
        for name, kind in (('lvm', logical_volumes.Lvm),
                           ('handles', handles.Handles)):
            asked.attach_mock(mock.create_autospec(kind, instance=True), name)
        asked.lvm.pool = pool
        service.lvm = asked.lvm
        service.node = dataclasses.replace(
            service.node, lvm=asked.lvm, handles=asked.handles)
        lvs = service.lvm.lvs.return_value = {
            'pool': lvm_reports.LogicalVolume('g', 'pool', 9, '', frozenset(),
                                              zeroes=True)}
        to_wipe = names.to_wipe('a@other', '0' * 12)
        lvs[to_wipe] = lvm_reports.LogicalVolume(
            'g', to_wipe, 5, '', frozenset())
        service.lvm.space.return_value = 'free', 'capacity'
        self.assertEqual(('free', [], 5), service.readiness())
        self.assertEqual([
            mock.call.devices(), mock.call.lvs(), mock.call.space(lvs),
            mock.call.check_groups(lvs),
            mock.call.check_disks()],  # asks LVM of striped ones only
            storage_parts.calls(asked))

    def test_a_full_pool_is_told(self):
        service = self.assemble(volume_group='g')
        service.node.exports.problem = lambda: ''
        self.sweep(service, allocated=95 * (1 << 30) // 100 + 1)
        trouble, = service.troubles()
        self.assertIn('its thin pool is full: 95 %', trouble)
        self.sweep(service, allocated=94 * (1 << 30) // 100)
        self.assertEqual([], service.troubles())

    @ddt.data('devices', 'lvs', 'space')
    def test_a_node_that_can_serve_nothing(self, lacking):
        service = self.assemble(volume_group='g')
        self.sweep(service)
        self.assertEqual('', service.condition().outage)
        service.problems = ['no dm-clone']  # says less than the outage
        room = service.node.handles if lacking == 'devices' else service.lvm
        setattr(room, lacking, mock.Mock(
            side_effect=ValueError('no group')))
        self.assertEqual(
            (lvm_reports.FreeSpace(0, 0, False), ['no group'], None),
            service.readiness())
        self.assertEqual(assembly.Condition(outage='no group'),
                         service.condition())
        self.assertEqual(lvm_reports.Capacity(0, 0, 0, 0),
                         service.condition().capacity)

    def test_an_outage_is_never_without_a_reason(self):
        service = self.assemble(volume_group='g')
        self.sweep(service)
        service.lvm.lvs = dict
        self.assertEqual('there is no thin pool g/pool',
                         service.condition().outage)
        service.lvm.lvs = mock.Mock(side_effect=ValueError)
        self.assertEqual('ValueError()', service.condition().outage)

    def test_a_target_that_hangs_is_told(self):
        service = self.assemble()
        self.sweep(service)
        service.node.exports.problem = lambda: ''
        self.assertEqual([], service.troubles())
        service.node.exports.problem = lambda: 'iqn.x hangs'
        self.assertEqual(['iqn.x hangs'], service.troubles())
        service.node.exports.problem = mock.Mock(
            side_effect=exceptions.CommandFailed(
                command='cat', code=1, stderr='why'))
        self.assertIn('why', service.troubles()[0])

    @ddt.data(('pool', 'zero', 1), (None, 'none', 0), (None, 'zero', 1))
    @ddt.unpack
    def test_cleared_as_cinder_does(self, pool, how, times):
        """A group of thin volumes may have some that are thick."""
        service = self.assemble(pool, volume_group='g', volume_clear=how)
        with mock.patch.object(
                assembly.volume_utils, 'clear_volume') as clear:
            service.lvm.device_of = lambda lv: '/dev/g/' + lv
            service.node.clear('volume-v', 2 << 30)
        self.assertEqual(times, clear.call_count)
        if times:
            self.assertEqual((2048, '/dev/g/volume-v'), clear.call_args.args)
            self.assertEqual(how, clear.call_args.kwargs['volume_clear'])

    def test_what_has_no_device_is_not_cleared(self):
        service = self.assemble(None)
        service.lvm.device_of = mock.Mock(
            side_effect=exceptions.WrongDevice(path='p', found='nothing'))
        with mock.patch.object(
                assembly.volume_utils, 'clear_volume') as clear:
            self.assertRaises(exceptions.WrongDevice, service.node.clear,
                              'volume-v', 2)
        clear.assert_not_called()


@ddt.ddt
class LockTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        self.coordinator = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.service.assembly.coordination.'
            'COORDINATOR')).mock
        self.lock = self.coordinator.get_lock.return_value
        self.locks = assembly.Lock(HOST, 20)

    def hold(self, name='v'):
        with self.locks(name):
            self.lock.release.assert_not_called()

    def test_held_and_released(self):
        self.hold()
        self.coordinator.get_lock.assert_called_once_with(
            'localclone-n1@l-v')
        self.lock.acquire.assert_called_once_with(blocking=20)
        self.lock.release.assert_called_once_with()

    def test_a_look_does_not_wait(self):
        self.locks = assembly.Lock(HOST, 0)
        self.lock.acquire.return_value = False
        self.assertRaises(exceptions.Busy, self.hold)
        self.lock.acquire.assert_called_once_with(blocking=False)

    def test_released_after_an_error(self):
        def fail():
            with self.locks('v'):
                raise KeyError('x')
        self.assertRaises(KeyError, fail)
        self.lock.release.assert_called_once_with()

    @ddt.data(('v', 'Volume v'), ('free-space', 'The free space'))
    @ddt.unpack
    def test_says_what_is_held_by_others(self, name, what):
        for result in ([False], coordination.LockAcquireFailed('x')):
            self.lock.acquire.side_effect = result
            error = self.assertRaises(exceptions.Busy, self.hold, name)
            self.assertIn(what + ' is still locked', str(error))
            self.assertIn('n1@l', str(error))
        self.lock.release.assert_not_called()


class EndTest(testtools.TestCase):
    """The service is told to end."""

    def setUp(self):
        super().setUp()
        self.addCleanup(signal.signal, signal.SIGTERM,
                        signal.getsignal(signal.SIGTERM))
        self.service = mock.create_autospec(
            assembly.Service, instance=True, node=specs.node())
        self.end = self.service.node.runner.end

    def test_re_encryptions_pause_before_anything_ends(self):
        order = []
        handler = oslo_service.SignalHandler()
        self.addCleanup(handler.clear)
        handler.clear()
        handler.add_handler('SIGTERM', lambda *_: order.append('ends'))
        for failed in (None, OSError):
            self.end.side_effect = lambda failed=failed: (
                order.append('pauses'), failed and self.fail_(failed))
            assembly.pause_at_end(self.service)
            handler._handle_signal_cb(signal.SIGTERM, None)
            self.assertEqual('ends', order[-1])
            self.assertEqual('pauses', order[0])
            order.clear()

    @staticmethod
    def fail_(error):
        raise error

    def test_no_launcher(self):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assembly.pause_at_end(self.service)
        self.assertEqual(signal.SIG_DFL, signal.getsignal(signal.SIGTERM))


@ddt.ddt
class LoopsTest(Base):

    def setUp(self):
        super().setUp()
        self.looping = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.service.assembly.loopingcall.'
            'DynamicLoopingCall')).mock
        self.unended = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.volumes.interrupted.sweep')).mock
        self.service = mock.Mock()
        self.reconciler = self.service.reconciler

    def start(self, **values):
        loops = assembly.start_loops(self.service, self.conf(**values))
        for call in self.looping.return_value.start.call_args_list:
            self.assertFalse(call.kwargs['stop_on_exception'])
        self.assertEqual(len(loops), self.looping.call_count)
        return [call.args[0] for call in self.looping.call_args_list]

    def test_each_at_its_interval(self):
        moves, node, sweep, to_wipe, wake = self.start(
            localclone_reconcile_interval=60)
        self.reconciler.copying.soonest_end.return_value = None
        self.assertEqual((5, 60), (moves(), node()))
        with mock.patch.object(uncommitted, 'sweep',
                               return_value=None) as swept:
            self.assertEqual(60, sweep())
        swept.assert_called_once_with(
            self.service.node, self.reconciler.seen)
        with mock.patch.object(cleanup, 'wipe_marked',
                               return_value=None) as removed:
            self.assertEqual(60, to_wipe())
        removed.assert_called_once_with(self.service.node,
                                        self.reconciler.seen)
        self.reconciler.reconcile_moves.assert_called_once_with()
        self.reconciler.reconcile_node.assert_called_once_with()
        self.unended.assert_called_once_with(
            self.service.node, self.service.started)
        self.reconciler.copying.waker.wake.return_value = False
        self.assertEqual(1, wake())

    def test_what_was_seen_last(self):
        """Not as the loops were started: the start has checked the node."""
        self.reconciler.seen = 'at the start'
        _moves, _node, sweep, to_wipe, _wake = self.start()
        self.reconciler.seen = 'last'
        with mock.patch.object(uncommitted, 'sweep',
                               return_value=None) as swept, (
                mock.patch.object(cleanup, 'wipe_marked',
                                  return_value=None)) as removed:
            sweep(), to_wipe()
        self.assertEqual(['last'] * 2, [
            each.call_args.args[-1] for each in (swept, removed)])

    @ddt.data((7.0, 5), (1.5, 1.5), (0.1, 1), (0.0, 1))
    @ddt.unpack
    def test_moves_sooner_if_there_is_something_to_do(self, soon, pause):
        self.reconciler.copying.soonest_end.return_value = soon
        self.assertEqual(pause, self.start()[0]())

    def test_copies_are_looked_at_as_often_as_they_are_prompted(self):
        with mock.patch.object(assembly, 'wake_copies',
                               return_value=None) as wake:
            self.start()[-1]()
        wake.assert_called_once_with(self.reconciler.copying.waker,
                                     copying.PROMPT)

    def test_loops_survive_an_error(self):
        for error in (exceptions.LocalCloneError(reason='x'), KeyError('x')):
            self.reconciler.reconcile_moves.side_effect = error
            with mock.patch.object(events, 'LOG') as log:
                self.assertEqual(5, self.start()[0]())
            log.error.assert_called_once()
            self.assertTrue(log.error.call_args.kwargs['exc_info'])
            self.looping.reset_mock()

    def test_what_nobody_ends_does_not_wait_for_a_look_that_fails(self):
        self.reconciler.reconcile_node.side_effect = KeyError('x')
        with mock.patch.object(events, 'LOG'):
            self.start(localclone_reconcile_interval=60)[1]()
        self.unended.assert_called_once()

    def test_copies_are_woken_while_there_are_any(self):
        sleep = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.service.assembly.time.sleep')).mock
        waker = mock.Mock()
        waker.wake.side_effect = [True, True, False]
        assembly.wake_copies(waker, 0.05)
        self.assertEqual([mock.call(0.05)] * 2, sleep.mock_calls)

    def test_waking_ends_after_a_minute(self):
        now = self.useFixture(fixtures.MockPatch(
            'cinder_localclone.service.assembly.time.monotonic',
            side_effect=[0, 59, 61])).mock
        self.useFixture(fixtures.MockPatch(
            'cinder_localclone.service.assembly.time.sleep'))
        assembly.wake_copies(mock.Mock(), 0.05)
        self.assertEqual(3, now.call_count)
