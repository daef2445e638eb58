# SPDX-License-Identifier: Apache-2.0
"""What the operator's command finds and says; the plan of a restore."""

import dataclasses
import os
import pathlib
import sys
import types
from unittest import mock

import ddt
import fixtures
import testtools

from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import packages
from cinder_localclone.cmd import main
from cinder_localclone.cmd import moves as moves_command
from cinder_localclone.cmd import repair as settle
from cinder_localclone.cmd import show
from cinder_localclone.core import boot_plan
from cinder_localclone.core import exceptions
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey as surveys
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.moves import hydration
from cinder_localclone.service import options
from cinder_localclone.service import restore
from cinder_localclone.storage import clone as stack
from cinder_localclone.storage import iscsi_initiator
from cinder_localclone.volumes import inspect
from cinder_localclone.volumes import repair

GIB = 1 << 30
GEOMETRY = state.Geometry(128, 32, 8)
V1, V2, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2, 3))
A, B = 'a@l', 'b@l'


def lv(name, *tags):
    return lvm_reports.LogicalVolume('g', name, GIB, '', frozenset(tags))


def survey(*lvs):
    return surveys.Survey({each.name: each for each in lvs}, {})


def metadata(*tags):
    return lv(names.metadata_lv(SHADOW), *tags)


WHOLE = names.tags(
    volume=V1, geometry=GEOMETRY, source='iqn.2026-11.org.example:x')


class RestoreTest(testtools.TestCase):

    def test_at_rest(self):
        found = boot_plan.plan(survey(
            lv('volume-' + V1, *names.tags(volume=V1)), lv('pool'),
            lv('volume-' + V2, *names.tags(volume=V2))))
        self.assertEqual([
            boot_plan.Local(V1, 'volume-' + V1, GIB),
            boot_plan.Local(V2, 'volume-' + V2, GIB)], found)

    def arriving(self, *tags):
        return boot_plan.plan(survey(
            lv('volume-' + SHADOW, *names.tags(volume=V1)),
            metadata(*tags)))

    def test_arriving(self):
        found, = self.arriving(*WHOLE)
        self.assertEqual('', found.reason)
        self.assertEqual(
            (V1, SHADOW, GEOMETRY, 1, 'iqn.2026-11.org.example:x'),
            (found.move.volume_id, found.move.shadow_id,
             found.move.geometry, found.move.size_gib,
             found.move.source_iqn))

    def test_arriving_is_never_given_out_by_itself(self):
        for lacking in WHOLE:
            for found in self.arriving(*set(WHOLE) - {lacking}):
                self.assertTrue(found.reason or found.move, lacking)
        found, = self.arriving()
        self.assertTrue(found.reason)

    def test_arriving_by_another_template(self):
        """Cinder's option volume_name_template."""
        name = SHADOW + '.lv'
        found, = boot_plan.plan(survey(
            lv(name, *names.tags(volume=V1)), metadata(*WHOLE)))
        self.assertEqual(name, found.move.destination_lv)

    def test_metadata_counts_only_beside_its_own_lv(self):
        """LVM may have created it after its move was given up."""
        found, = boot_plan.plan(survey(
            lv('volume-' + V1, *names.tags(volume=V1)), metadata(*WHOLE)))
        self.assertEqual('', found.reason)
        self.assertIsNone(found.move)

    def test_what_needs_no_source_goes_first(self):
        found = boot_plan.plan(survey(
            lv('a-' + SHADOW, *names.tags(volume=V1)), metadata(*WHOLE),
            lv('volume-' + V2, *names.tags(volume=V2))))
        self.assertEqual([V2, V1], [each.volume_id for each in found])

    def test_a_volume_with_a_handle_is_left_alone(self):
        found = mock.MagicMock()
        found.survey.return_value = surveys.Survey(
            survey(lv('volume-' + V1, *names.tags(volume=V1))).lvs,
            {names.handle(V1): mock.sentinel.device})
        (_local, problem), = restore.restore(found, mock.MagicMock())
        self.assertEqual('', problem)
        found.ensure_handle_on_lv.assert_not_called()

    def test_two_that_claim_to_be_one(self):
        found = boot_plan.plan(survey(
            lv('volume-' + V1, *names.tags(volume=V1)),
            lv('volume-' + V2, *names.tags(volume=V1))))
        self.assertEqual(
            ['two LVs of this node have the tag of this volume'] * 2,
            [each.reason for each in found])

    def test_one_that_fails_does_not_stop_the_others(self):
        found = mock.MagicMock()
        found.survey.return_value = survey(
            lv('volume-' + V1, *names.tags(volume=V1)),
            lv('volume-' + V2, *names.tags(volume=V2)))
        found.ensure_handle_on_lv.side_effect = [
            exceptions.CommandFailed(command='c', code=1, stderr='s'), True]
        outcome = restore.restore(found, mock.MagicMock())
        self.assertEqual([False, True], [
            not problem for _local, problem in outcome])

    def test_a_source_that_is_not_known_leaves_the_volume(self):
        found = mock.MagicMock()
        found.survey.return_value = survey(
            lv('volume-' + SHADOW, *names.tags(volume=V1)), metadata(*WHOLE))
        sessions = mock.create_autospec(
            iscsi_initiator.Sessions, instance=True)
        sessions.login_from_records.side_effect = exceptions.NotPossible(
            volume=V1, reason='not known.')
        (_local, problem), = restore.restore(found, sessions)
        self.assertIn('not known', problem)
        found.ensure_handle_on_lv.assert_not_called()
        found.ensure_clone.assert_not_called()


def moving(phase, committed=True):
    return state.Move(
        V1, SHADOW, state.Token(phase, 'n', GEOMETRY), committed, A, B,
        'volume-' + V1, 'volume-' + SHADOW, 1)


def standing(host, on=None, lvs=(), clone=None, served=False, **more):
    found = {'host': host, 'served': False, 'session': None,
             'source': {'opened': 1, 'exported': served},
             'lvs': [{'name': name} for name in lvs], 'clone': clone,
             'handle': on and {'on': [on], 'opened': 0, 'suspended': False},
             'progress': None, 'passed': False, 'tops': []}
    found.update(more)
    return found


ON_CLONE = 'clone ' + names.clone(SHADOW)
META = names.metadata_lv(SHADOW)
CLONE = {'mode': 'rw', 'enabled': True}
MIGRATING = moving(Phase.MIGRATING)
OLD, NEW = 'volume-' + V1, 'volume-' + SHADOW

DIFFERENCES = (
    # what, found, move, words that must be in the one difference
    ('destination', standing(
        B, ON_CLONE, [NEW, META], CLONE, session='/dev/sda'),
     MIGRATING, None),
    ('destination that waits for its turn', standing(
        B, ON_CLONE, [NEW, META], dict(CLONE, enabled=False),
        session='/dev/sda', progress={'place': 2}), MIGRATING, None),
    ('destination that copies before its turn', standing(
        B, ON_CLONE, [NEW, META], CLONE, session='/dev/sda',
        progress={'place': 2}), MIGRATING, 'is copying'),
    ('destination that does not copy in its turn', standing(
        B, ON_CLONE, [NEW, META], dict(CLONE, enabled=False),
        session='/dev/sda', progress={'place': 0}), MIGRATING,
     'not copying'),
    ('destination on the LV', standing(
        B, 'LV ' + NEW, [NEW, META], CLONE, session='/dev/sda'),
     MIGRATING, 'not on the clone'),
    ('no clone', standing(B, ON_CLONE, [NEW, META], session='/dev/sda'),
     MIGRATING, 'clone is missing'),
    ('failed clone', standing(
        B, ON_CLONE, [NEW, META], dict(CLONE, mode='Fail'),
        session='/dev/sda'),
     MIGRATING, 'mode Fail'),
    ('copying too early', standing(
        B, ON_CLONE, [NEW, META], CLONE, session='/dev/sda'),
     moving(Phase.STARTING), 'the clone is copying'),
    ('not copying', standing(
        B, ON_CLONE, [NEW, META], dict(CLONE, enabled=False),
        session='/dev/sda'),
     MIGRATING, 'not copying'),
    ('no session', standing(B, ON_CLONE, [NEW, META], CLONE), MIGRATING,
     'no session'),
    ('no metadata', standing(B, ON_CLONE, [NEW], CLONE, session='/dev/sda'),
     MIGRATING, 'metadata LV is missing'),
    ('no LV', standing(B, ON_CLONE, [META], CLONE, session='/dev/sda'),
     MIGRATING, 'LV %s is missing' % NEW),
    ('cut over', standing(B, 'LV ' + NEW, [NEW]),
     moving(Phase.COMPLETING), None),
    ('not cut over', standing(B, ON_CLONE, [NEW]), moving(Phase.RELEASING),
     'not on the LV'),
    ('source', standing(A, None, [OLD], served=True), MIGRATING, None),
    ('source, not exported', standing(A, None, [OLD]), MIGRATING,
     'not exported'),
    ('source without its device', standing(A, None, [OLD], source=None),
     MIGRATING, 'not exported'),
    ('source with a handle', standing(A, 'LV ' + OLD, [OLD], served=True),
     MIGRATING, 'still on the LV'),
    ('source that uses the volume again',
     standing(A, '8:16', [OLD], served=True, passed=True), MIGRATING, None),
    ('source with a handle of another kind',
     standing(A, '8:16', [OLD], served=True), MIGRATING,
     'although the volume is not on'),
    ('source of a live move', standing(A, 'LV ' + OLD, [OLD], served=True),
     moving(Phase.STARTING), None),
    ('source of a live move without handle',
     standing(A, None, [OLD], served=True), moving(Phase.STARTING),
     'on nothing'),
    ('source of what is not committed',
     standing(A, 'LV ' + OLD, [OLD], source=None),
     moving(Phase.MIGRATING, False), None),
    ('source of what is not committed, without handle',
     standing(A, None, [OLD], source=None),
     moving(Phase.MIGRATING, False), 'on nothing'),
    ('source without LV', standing(A, served=True), MIGRATING,
     'LV %s is missing' % OLD),
    ('source not removed', standing(A, None, [OLD]),
     moving(Phase.RELEASING), 'an ended move has left'),
    ('passed through', standing('c@l', '8:16', passed=True), None, None),
    ('a handle for no reason', standing('c@l', '8:16'), None,
     'although the volume is not on'),
    ('not swapped yet', standing(
        B, '8:16', [NEW, META], CLONE, session='/dev/sda', passed=True),
     MIGRATING, 'still attached remotely'),
    ('source of what follows', standing(
        A, 'LV ' + OLD, [OLD], served=True) | {'served': True},
     dataclasses.replace(MIGRATING, asked_by=state.Asked.FOLLOW), None),
    ('source that serves nobody', standing(
        A, 'LV ' + OLD, [OLD], served=True),
     dataclasses.replace(MIGRATING, asked_by=state.Asked.FOLLOW),
     'still on the LV'),
    ('at home', standing(A, 'LV x', ['x']), None, None),
    ('at home, no handle', standing(A, None, ['x']), None, 'on nothing'),
    ('at home, no LV', standing(A, None), None, 'LV x is missing'),
    ('suspended', standing(A, None, ['x'], handle={
        'on': ['LV x'], 'opened': 1, 'suspended': True}), None, 'suspended'),
    ('elsewhere', standing('c@l'), None, None),
    ('stray handle', standing('c@l', 'LV y'), None, 'not on this node'),
)


@ddt.ddt
class DifferencesTest(testtools.TestCase):

    @ddt.data(*DIFFERENCES)
    @ddt.unpack
    def test_differences(self, _what, found, move, words):
        if move and move.is_over:
            wrong = inspect.differences(found, None, B, NEW, [move])
        else:
            wrong = inspect.differences(found, move, A, 'x')
        if words is None:
            self.assertEqual([], wrong)
        else:
            self.assertEqual(1, len(wrong), wrong)
            self.assertIn(words, wrong[0])


class RecorderTest(testtools.TestCase):

    def test_effects_are_noted_only_if_they_did_something(self):
        inner = mock.MagicMock()
        inner.create_lv.return_value = True
        inner.remove_lv.return_value = False
        journal = []
        recorder = repair.Recorder(inner, journal)
        recorder.create_lv('a', 1, 'v')
        recorder.remove_lv('b')
        recorder.lvs()
        self.assertEqual(['created LV a'], journal)

    def test_every_effect_that_is_named_exists(self):
        from cinder_localclone.db import moves
        from cinder_localclone.storage import iscsi_target
        for name in repair.DESCRIPTIONS:
            self.assertTrue(any(
                hasattr(kind, name) for kind in (
                    stack.Stack, iscsi_target.Exports, moves.Records)), name)


@ddt.ddt
class ChecksTest(testtools.TestCase):

    def only(self, findings, verdict):
        return [each for each in findings if each.verdict == verdict]

    def test_commands(self):
        self.assertEqual([], self.only(checks.commands(
            lambda name: '/x/' + name), checks.FAIL))
        found, = checks.commands(
            lambda name: None if name in ('lvs', 'dmsetup') else 'x',
            packages.DEB)
        self.assertEqual('apt install dmsetup lvm2', found.fix)

    def test_targets(self):
        text = 'thin-pool        v1.22.0\nclone            v1.0.0\n'
        self.assertEqual(2, len(self.only(checks.targets(text), checks.OK)))
        found, = self.only(checks.targets('thin-pool v1\n'), checks.FAIL)
        self.assertIn('CONFIG_DM_CLONE', found.fix)

    def test_modules(self):
        self.assertEqual([checks.OK] * 2, [
            each.verdict for each in checks.modules(lambda name: True)])
        found, = self.only(checks.modules(
            lambda name: name != 'target_core_iblock'), checks.FAIL)
        self.assertEqual('kernel: iSCSI target', found.check)
        self.assertIn('modprobe -a target_core_iblock;', found.fix)
        self.assertIn('CONFIG_TCM_IBLOCK', found.fix)
        self.assertNotIn('CONFIG_ISCSI_TARGET', found.fix)
        found, = self.only(checks.modules(
            lambda name: name != 'iscsi_tcp'), checks.FAIL)
        self.assertEqual('kernel: iSCSI initiator', found.check)

    def rule_directories(self, *texts):
        """Directories of udev rules; None: without the driver's."""
        found = []
        for text in texts:
            found.append(self.useFixture(fixtures.TempDir()).path)
            if text is not None:
                with open(os.path.join(found[-1], checks.RULES), 'w') as file:
                    file.write(text)
        return found

    OURS = (pathlib.Path(__file__).parents[3] / 'etc/udev/rules.d'
            / checks.RULES).read_text()

    @ddt.data(((None, OURS), checks.OK, ''), ((OURS, 'old'), checks.OK, ''),
              ((None, None), checks.WARN, 'is not installed'),
              (('old: LOCALCLONE-*', OURS), checks.WARN, 'this version'))
    @ddt.unpack
    def test_rules(self, texts, verdict, words):
        directories = self.rule_directories(*texts)
        found, = checks.rules(directories)
        self.assertEqual(verdict, found.verdict)
        self.assertIn(words, found.details)
        self.assertEqual(verdict == checks.OK, not found.fix)
        if words:
            self.assertIn('cp %s/lib/udev/rules.d/11-localclone.rules '
                          '/etc/udev/rules.d/;' % sys.prefix, found.fix)

    def test_rules_that_are_masked(self):
        masked, ours = self.rule_directories(None, self.OURS)
        os.symlink('/dev/null', os.path.join(masked, checks.RULES))
        found, = checks.rules([masked, ours])
        self.assertEqual(checks.WARN, found.verdict)

    @ddt.data(
        ('use_devicesfile=1\nglobal_filter=["a|.*|"]', []),
        ('global_filter=["a|.*|"]\nfilter=["a|.*|"]',
         ['volumes', 'imported disks']),
        ('filter=["a|^/dev/vd[ab]$|","r|.*|"]\nglobal_filter=["a|.*|"]', []),
        ('use_devicesfile=0\nglobal_filter=["a|^/dev/sd|","r|.*|"]',
         ['imported disks']),
        # Whatever else the disk is called: the link is a name that counts.
        ('global_filter=["r|^/dev/disk/by-id/scsi-localclone-|"]',
         ['volumes']),
        ('global_filter="r|^/dev/mapper/localclone-|"', ['imported disks']),
        (r'global_filter=["r|/dev/mapper/.*|","r/\/dev\/sd.*/"]', []),
        # What is accepted first is not rejected afterwards.
        ('global_filter=["a|.*|","r|.*|"]', ['volumes', 'imported disks']))
    @ddt.unpack
    def test_lvm_filter(self, text, seen):
        found, = checks.lvm_filter(text)
        self.assertEqual(checks.WARN if seen else checks.OK, found.verdict)
        self.assertEqual(bool(seen), 'global_filter' in found.fix)
        for what in checks.GUESTS:
            self.assertEqual(what in seen, what in found.details, found)

    def groups(self, broken, message):
        def look(group):
            if group == broken:
                raise exceptions.CommandFailed(
                    command='vgs', code=5, stderr=message)
        return checks.groups({
            'volume_group': 'cinder-volumes',
            'localclone_metadata_volume_group': 'fast'}, look)

    @ddt.data(('fast', 'localclone_metadata_volume_group'),
              ('cinder-volumes', 'volume_group'))
    @ddt.unpack
    def test_missing_group_is_the_one_to_make(self, group, option):
        found, = self.only(self.groups(
            group, 'Volume group "%s" not found' % group), checks.FAIL)
        self.assertEqual('vgcreate %s /dev/DISK, or correct %s' % (
            group, option), found.fix)

    def test_group_that_is_there_is_not_to_be_made(self):
        found, = self.only(self.groups(
            'fast', 'cannot read /dev/sdb'), checks.FAIL)
        self.assertNotIn('vgcreate', found.fix)
        self.assertEqual([], self.only(self.groups(None, ''), checks.FAIL))

    @ddt.data((True, 10, 10, []), (False, 10, 10, ['thin pool zeroes']),
              (True, 85, 10, ['thin pool data']),
              (True, 95, 10, ['thin pool data']),
              (True, 10, 79, []), (True, 10, 85, ['thin pool metadata']))
    @ddt.unpack
    def test_pool(self, zeroes, data, meta, wrong):
        found = self.pool(data, meta, 64, zeroes)
        self.assertEqual(wrong, [each.check for each in found
                                 if each.verdict != checks.OK])

    @staticmethod
    def pool(data, metadata, metadata_mib, zeroes=True):
        return checks.pool('g', 'p', {'p': dataclasses.replace(
            lv('p'), size=100, zeroes=zeroes, allocated=data,
            metadata_size=metadata_mib << 20,
            metadata_used=metadata * (metadata_mib << 20) // 100)})

    @ddt.data((94, 0, 64, checks.WARN), (95, 0, 64, checks.FAIL),
              (0, 89, 64, checks.WARN), (0, 91, 64, checks.FAIL),
              # LVM reserves more of a small one.
              (0, 64, 4, checks.OK), (0, 66, 4, checks.WARN),
              (0, 76, 4, checks.FAIL))
    @ddt.unpack
    def test_pool_that_takes_nothing_new(self, data, metadata, mib, verdict):
        self.assertEqual(verdict, max(
            (each.verdict for each in self.pool(data, metadata, mib)),
            key=[checks.OK, checks.WARN, checks.FAIL].index))

    def conf(self, **more):
        return types.SimpleNamespace(**dict({
            'localclone_peer_timeout': 40,
            'localclone_region_size_kib': 64}, **more))

    def test_limits(self):
        self.assertEqual(checks.OK, checks.limits(self.conf(), 60)[0].verdict)
        self.assertIn('gives up first', checks.limits(
            self.conf(localclone_peer_timeout=60), 60)[0].details)
        self.assertIn('power of two', checks.limits(
            self.conf(localclone_region_size_kib=65), 60)[0].details)

    @ddt.data((64, 512, 32), (1024, 32, 2), (4, 8192, 512))
    @ddt.unpack
    def test_as_many_regions_as_so_many_bytes_are(self, kib, threshold,
                                                  batch):
        self.assertEqual(
            state.Geometry(2 * kib, threshold, batch), options.geometry(
                self.conf(localclone_region_size_kib=kib)))

    @ddt.data((100, checks.OK), (104, checks.WARN), (95, checks.WARN))
    @ddt.unpack
    def test_clock(self, theirs, verdict):
        found, = checks.clock('h', theirs, 99.5, 100.5)
        self.assertEqual(verdict, found.verdict)


@ddt.ddt
class MovesTest(testtools.TestCase):

    def row(self, move, found, problem=''):
        backend = mock.MagicMock()
        backend.records.moves.return_value = [move]
        backend.ask.return_value = found, problem
        row, = moves_command.progress(backend)
        return row

    def test_copying(self):
        progress = dataclasses.asdict(hydration.Progress(25.0, 1 << 21, 7))
        row = self.row(MIGRATING, standing(
            B, clone=dict(CLONE, hydrated=1, regions=4), progress=progress))
        self.assertEqual((25.0, 2.0, 7, ''), tuple(
            row[key] for key in ('Percent', 'MiB/s', 'Seconds left',
                                 'Remark')))

    @ddt.data(('yielding', 'yielding to the guest'), ('full', 'full speed'),
              ('floor', 'at the floor'), ('limited', 'limited'),
              ('of a newer service', 'of a newer service'), ('', None))
    @ddt.unpack
    def test_pace(self, pace, words):
        progress = dataclasses.asdict(
            hydration.Progress(25.0, None, None, pace=pace))
        found = standing(B, clone=dict(CLONE, hydrated=1, regions=4),
                         progress=progress)
        self.assertEqual(words, self.row(MIGRATING, found)['Pace'])

    @ddt.data((MIGRATING, {A: True, B: False}),
              (dataclasses.replace(MIGRATING, token=dataclasses.replace(
                  MIGRATING.token, phase=Phase.COMPLETING)),
               {A: True, B: False}))
    @ddt.unpack
    def test_node_that_is_down_is_not_asked(self, move, alive):
        """It would take as long as a call may, for each of its copies."""
        backend = mock.MagicMock()
        backend.nodes.return_value = alive
        backend.records.moves.return_value = [move, move]
        for row in moves_command.progress(backend):
            self.assertIn('service is down', row['Remark'])
        backend.ask.assert_not_called()

    def test_who_is_asked(self):
        """Also a node of which it is not known whether its service is up."""
        over = dataclasses.replace(MIGRATING, token=dataclasses.replace(
            MIGRATING.token, phase=Phase.COMPLETING))
        for move, calls in (
                (MIGRATING,
                 [mock.call(B, 'inspect', MIGRATING.volume_id)] * 2),
                (over, [mock.call(B, 'describe')])):
            backend = mock.MagicMock()
            backend.nodes.return_value = {}
            backend.records.moves.return_value = [move, move]
            backend.ask.return_value = None, 'it is silent'
            for row in moves_command.progress(backend):
                self.assertIn('it is silent', row['Remark'])
            self.assertEqual(calls, backend.ask.mock_calls)

    def test_copy_that_fails(self):
        progress = dataclasses.asdict(
            hydration.Progress(25.0, None, None, 5.0))
        row = self.row(MIGRATING, standing(
            B, clone=dict(CLONE, hydrated=1, regions=4), progress=progress))
        self.assertIn('copying fails', row['Remark'])

    def test_copy_that_waits_for_its_turn(self):
        progress = dataclasses.asdict(
            hydration.Progress(25.0, None, None, place=3))
        row = self.row(MIGRATING, standing(
            B, clone=dict(CLONE, hydrated=1, regions=4), progress=progress))
        self.assertEqual((25.0, 'waiting for its turn (3rd)'),
                         (row['Percent'], row['Remark']))

    def test_show_says_that_a_copy_waits(self):
        for place, shown in ((2, ['waiting for its turn (2nd)']), (0, [])):
            found = show._on_node(standing(
                B, clone=dict(CLONE, hydrated=1, regions=4),
                progress={'place': place}))
            self.assertEqual(
                [(text, {'place': place}) for text in shown],
                [(value, fields) for what, value, fields in found
                 if what == 'copy'])

    def test_node_that_does_not_answer(self):
        row = self.row(MIGRATING, None, 'it did not answer')
        self.assertEqual('it did not answer', row['Remark'])
        self.assertIsNone(row['Percent'])

    def test_waiting(self):
        row = self.row(moving(Phase.STARTING), standing(
            B, clone=dict(CLONE, hydrated=0, regions=4)))
        self.assertIn('waits', row['Remark'])

    def test_being_removed(self):
        row = self.row(moving(Phase.RELEASING), None)
        self.assertEqual((100.0, 'cleaning up on ' + A),
                         (row['Percent'], row['Remark']))

    def test_node_is_asked_once_what_keeps_it_from_cleaning_up(self):
        """One that is down lets each who asks wait, and has many volumes."""
        backend = mock.MagicMock()
        backend.records.moves.return_value = [
            moving(Phase.RELEASING), moving(Phase.RELEASING)]
        backend.ask.return_value = None, 'it did not answer'
        rows = moves_command.progress(backend)
        self.assertEqual(['cleaning up on %s; it did not answer' % A] * 2,
                         [row['Remark'] for row in rows])
        backend.ask.assert_called_once_with(A, 'describe')

    def test_watch_does_not_wait_for_a_clean_up(self):
        backend = mock.MagicMock()
        backend.records.moves.return_value = [moving(Phase.RELEASING)]
        self.assertEqual([], moves_command.progress(backend, over=False))

    def test_preparing(self):
        for phase in (Phase.STARTING, Phase.MIGRATING):
            row = self.row(moving(phase, committed=False), None)
            self.assertEqual(('preparing', ''), (row['Phase'], row['Remark']))
        row = self.row(moving(Phase.ROLLING_BACK, committed=False), None)
        self.assertEqual(('rolling-back', 'cleaning up on ' + B),
                         (row['Phase'], row['Remark']))

    def test_which_node_abort_and_resume_ask(self):
        starting, early = moving(Phase.STARTING), moving(
            Phase.MIGRATING, committed=False)
        self.assertEqual((B, A), (
            settle.Abort.decides(starting), settle.Abort.decides(early)))
        self.assertEqual((A, B), (
            settle.Resume.decides(starting),
            settle.Resume.decides(MIGRATING)))


class MainTest(testtools.TestCase):

    def test_every_command_explains_itself(self):
        for name, entry in main.LocalClone().command_manager:
            self.assertTrue(entry.load().__doc__, name)
