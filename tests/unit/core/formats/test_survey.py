# SPDX-License-Identifier: Apache-2.0
"""What a survey says of handles and what they are on."""

import dataclasses

import ddt
import testtools

from cinder_localclone.core.formats import dm_ioctl
from cinder_localclone.core.formats import dm_tables
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core.formats import survey
from cinder_localclone.core import names
from cinder_localclone.core import state

V1, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2))
META = names.metadata_lv(SHADOW)


def lv(name, number, group='g', tags=()):
    return lvm_reports.LogicalVolume(group, name, 1, number, frozenset(tags))


def device(name, number, table, suspended=False, opened=0):
    return dm_tables.Device(name, names.device_uuid(name), number, opened,
                            suspended, table)


def by_name(*things):
    return {each.name: each for each in things}


def move(**more):
    return dataclasses.replace(state.Move(
        V1, SHADOW, state.Token(state.Phase.MIGRATING, 'n',
                                state.Geometry(128, 32, 8)), True, 'a@l',
        'b@l', 'x', 'v', 1), **more)


@ddt.ddt
class OneVolumeTest(testtools.TestCase):
    """Of one volume its own devices say as much as all of a node's do."""

    ASKED = ('handle', 'guard', 'crypt', 'integrity', 'upper_devices',
             'export_device',
             'users', 'guarded_sectors')

    def setUp(self):
        super().setUp()
        found = []
        for number, volume_id in enumerate((V1, V1[:-1] + '8',
                                            V1[:-1] + '9')):
            handle = '253:%d0' % (number + 1)
            above = [names.guard(volume_id), names.crypt(volume_id),
                     names.integrity(volume_id),
                     names.export_device(volume_id)] + [
                '%s-%s' % (names.crypt(volume_id), each) for each in (
                    'overlay', 'hotzone-forward', 'hotzone-backward')]
            found.append(device(names.handle(volume_id), handle,
                                '0 8 linear 253:5 0', opened=9))
            for minor, name in enumerate(above, 1):
                table = ('0 8 crypt x :1 0 %s 0' if minor == 2
                         else '0 8 linear %s 0') % handle
                found.append(device(name, '253:%d%d' % (number + 1, minor),
                                    table, opened=minor))
        found += [device(kind(SHADOW), '253:9%d' % minor, '0 8 error')
                  for minor, kind in enumerate((
                      names.clone, names.source, names.absent_source))]
        self.all = survey.Survey({}, by_name(*found))

    def limited(self, wanted):
        return survey.Survey({}, {
            name: each for name, each in self.all.devices.items()
            if name in wanted})

    @ddt.data(*ASKED)
    def test_says_as_much(self, what):
        present = self.limited(survey.names_of(V1))
        self.assertEqual(8, len(present.devices))
        expected = getattr(self.all, what)(V1)
        self.assertTrue(expected or what == 'guarded_sectors')
        self.assertEqual(expected, getattr(present, what)(V1))

    def test_users_are_never_too_few(self):
        """Whatever a list of names would lack counts as another user."""
        wanted = survey.names_of(V1)
        count = self.all.users(V1)
        for name in wanted[5:]:
            self.assertEqual(count + 1, self.limited(
                set(wanted) - {name}).users(V1))

    def test_of_a_move(self):
        present = self.limited(survey.names_of(V1, SHADOW))
        for what in ('clone', 'source'):
            self.assertEqual(getattr(self.all, what)(SHADOW),
                             getattr(present, what)(SHADOW))
        self.assertIn(names.absent_source(SHADOW), present.devices)

    def test_all_that_is_own(self):
        """Each of them is one that a survey of all shows."""
        uuids = {names.crypt(V1): 'LUKS2', names.integrity(V1): 'INTEGRITY'}
        shown = dm_tables.own_devices([
            dm_ioctl.Status(name, 'CRYPT-%s-%s-%s' % (
                uuids.get(name, 'SUBDEV'), 32 * '0', name)
                if name.startswith(names.crypt(V1))
                else names.device_uuid(name), '253:1', 0, False, '')
            for name in survey.names_of(V1, SHADOW)], names.device_uuid(''))
        self.assertEqual(set(survey.names_of(V1, SHADOW)), set(shown))


@ddt.ddt
class SurveyTest(testtools.TestCase):

    def present(self, below, number='253:5', **more):
        return survey.Survey(by_name(lv('v', number), lv(META, '253:4')), (
            by_name(device(names.handle(V1), '253:7',
                           '0 2097152 linear %s 0' % below, **more),
                    device(names.clone(SHADOW), '253:6', '0 1 clone a b c'))))

    @ddt.data(('253:5', True, False), ('253:6', False, True),
              ('253:4', False, False), ('8:0', False, False))
    @ddt.unpack
    def test_handle(self, below, on_lv, on_clone):
        present = self.present(below)
        self.assertIs(on_lv, present.is_handle_on_lv(V1, 'v'))
        self.assertIs(on_clone, present.is_handle_on_clone(move()))

    @ddt.data(
        ('8:0', True),  # over iSCSI
        ('8:0 0\n2097152 8 linear 8:16', True),
        ('8:0 0\n2097152 8 linear 253:5', False),
        ('253:5 0\n2097152 8 linear 8:0', False),
        ('253:5', False), ('253:6', False),
        ('253:6 0\n2097152 8 linear 253:5', False),
        ('253:99', False),  # an LV of another backend
        ('25:99', True), ('8:253', True), ('2530:1', True))
    @ddt.unpack
    def test_foreign_handle(self, below, foreign):
        present = self.present(below)
        self.assertIs(foreign, present.is_handle_foreign(V1))
        self.assertEqual({V1} if foreign else set(),
                         present.foreign_handles())

    def test_handle_that_is_foreign_to_nobody(self):
        """It is on nothing; or there is none."""
        present = survey.Survey({}, by_name(
            device(names.handle(V1), '253:7', '0 8 error'),
            device(names.clone(SHADOW), '253:6', '0 8 linear 8:0 0')))
        for volume_id in (V1, SHADOW):
            self.assertIs(False, present.is_handle_foreign(volume_id))
        self.assertEqual(set(), present.foreign_handles())

    def test_foreign_whatever_its_number_is_called(self):
        """Of no device of its own, nor of an LV, by a name without colon."""
        for below, foreign in (('v', False), ('c', False), ('x', True)):
            present = survey.Survey({'name': lv('name', 'v')}, {
                'other': device('other', 'c', '0 8 error'),
                names.handle(V1): device(
                    names.handle(V1), 'h', '0 8 linear %s 0' % below)})
            self.assertIs(foreign, present.is_handle_foreign(V1))

    def test_sources(self):
        other = V1[:-1] + '9'
        present = survey.Survey(
            by_name(lv('v', '253:5'), lv('w', '253:4'), lv('x', '')), by_name(
                device(names.source(SHADOW), '253:6', '0 1 linear 253:5 0'),
                device(names.source(other), '253:7', '0 1 linear 253:4 0'),
                device(names.source(V1), '253:8', ''),
                device(names.handle(V1), '253:9', '0 1 linear 253:5 0')))
        self.assertEqual([V1, other, SHADOW], sorted(present.sources()))
        self.assertEqual(
            [[SHADOW], [other], [], []],
            [present.sources_above(each) for each in 'vwxy'])
        self.assertEqual({V1}, present.volumes_above('g', 'v'))
        self.assertEqual('253:6', present.source(SHADOW).number)
        self.assertIsNone(present.source(META))

    @ddt.data('253:5', '253:6')
    def test_suspended_handle_is_on_nothing(self, below):
        present = self.present(below, suspended=True)
        self.assertFalse(present.is_handle_on_lv(V1, 'v'))
        self.assertFalse(present.is_handle_on_clone(move()))

    @ddt.data((0, 1, True), (1 << 30, 1, True), ((1 << 30) + 1, 2, False))
    @ddt.unpack
    def test_handle_that_is_too_short(self, size, gib, enough):
        self.assertIs(enough, self.present('253:5').is_handle_on_lv(
            V1, 'v', size))
        self.assertIs(enough, self.present('253:6').is_handle_on_clone(
            move(volume_gib=gib)))

    @ddt.data(1, 2)
    def test_extended_on_its_clone(self, gib):
        """It is not on the LV alone before the clone has gone."""
        present = self.present('253:6 0\n2097152 2097152 linear 253:5')
        self.assertTrue(present.is_handle_on_clone(move(volume_gib=gib)))
        self.assertFalse(present.is_handle_on_lv(V1, 'v'))
        self.assertEqual({V1}, present.volumes_above('g', 'v'))

    def test_missing_things(self):
        self.assertFalse(self.present('253:5', '').is_handle_on_lv(V1, 'v'))
        present = self.present('253:5')
        self.assertFalse(present.is_handle_on_lv(V1, 'w'))
        self.assertFalse(present.is_handle_on_lv(SHADOW, 'v'))
        self.assertFalse(present.is_handle_on_clone(
            move(move_id=V1)))
        self.assertFalse(present.is_handle_on_clone(
            move(volume_id=SHADOW)))

    def test_by_id(self):
        present = self.present('253:5')
        self.assertEqual('253:7', present.handle(V1).number)
        self.assertEqual('253:6', present.clone(SHADOW).number)
        self.assertEqual('253:4', present.metadata(SHADOW).number)
        self.assertEqual((None,) * 3, (
            present.handle(SHADOW), present.clone(V1), present.metadata(V1)))

    def test_uncommitted_of_another_group_are_not_ours(self):
        tags = names.UNCOMMITTED, *names.tags(volume=V1)
        present = survey.Survey(by_name(
            lv('a', '253:1', tags=tags), lv('b', '253:2', 'other', tags),
            lv('c', '253:3', tags=tags[1:])), {})
        self.assertEqual([(V1, 'a')], [
            (volume_id, each.name) for volume_id, each in
            present.uncommitted_lvs('g')])

    @ddt.data('volume-%s', 'vol_%s.disk')
    def test_left_of_a_volume(self, template):
        """Not what another backend has, nor what a move brings here."""
        tags = names.tags(volume=V1)
        present = survey.Survey(by_name(
            lv('a', '253:1', tags=tags), lv('b', '253:2', 'other', tags),
            lv('c', '253:3', tags=names.tags(volume=SHADOW)),
            lv(META, '253:4', tags=tags),
            lv(template % SHADOW, '253:5', tags=tags)), {})
        self.assertEqual(['a'], [
            each.name for each in present.complete_lvs(V1, 'g')])

    def test_handles_of_another_backend_are_not_ours(self):
        lvs = by_name(lv('a', '253:1'), lv('b', '253:2'),
                      lv('c', '253:3', 'other'), lv('d', ''))
        v1, v2, v3, v4 = ('%08d-0000-4000-8000-000000000000' % n
                          for n in range(1, 5))
        present = survey.Survey(lvs, by_name(
            device(names.clone(SHADOW), '253:6', '0 1 clone 253:9 253:2 8:0'),
            device(names.handle(v1), '253:10', '0 1 linear 253:1 0'),
            device(names.handle(v2), '253:11', '0 1 linear 253:6 0'),
            device(names.handle(v3), '253:12', '0 1 linear 253:3 0'),
            device(names.handle(v4), '253:13', '0 1 linear 253:7 0'),
            device('localclone-other', '253:14', '0 1 linear 253:1 0')))
        self.assertEqual({v1, v2}, present.volumes_above('g'))
        self.assertEqual({v1}, present.volumes_above('g', 'a'))
