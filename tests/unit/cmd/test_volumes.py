# SPDX-License-Identifier: Apache-2.0
"""What is listed of nodes and volumes; names; packages; real fields."""

import json
import types
from unittest import mock

import ddt
import testtools

from cinder_localclone.cmd import backend as backends
from cinder_localclone.cmd.doctor import checks
from cinder_localclone.cmd.doctor import doctor
from cinder_localclone.cmd.doctor import encryption
from cinder_localclone.cmd.doctor import packages
from cinder_localclone.cmd import errors
from cinder_localclone.cmd import main
from cinder_localclone.cmd import volumes
from cinder_localclone.core import copies
from cinder_localclone.core.state import Phase
from cinder_localclone.db import inventory
from tests.helpers import command_case
from tests.helpers import inventory_rows

A, B, C = inventory_rows.A, inventory_rows.B, inventory_rows.C
V1, V2, V3 = inventory_rows.V1, inventory_rows.V2, inventory_rows.V3


class Base(command_case.CommandCase):

    def setUp(self):
        super().setUp()
        self.backend.name, self.backend.host = 'l', A
        self.backend.nodes.return_value = {A: True, B: True}
        self.backend.conf = types.SimpleNamespace(
            localclone_max_copies_in=1, localclone_max_copies_out=2)
        self.records = self.backend.records
        self.records.all_volumes.return_value = [
            inventory_rows.row(V1, A, display_name='one', hosts=('a', '')),
            inventory_rows.row(V2, B, encryption_key_id='k')]
        self.records.all_moves.return_value = [inventory.Under(
            inventory_rows.moving(V2), 0.0)], 0
        self.records.copies.return_value = [
            copies.Entry('s%d' % n, V2, A, B, began=n) for n in range(3)]
        self.records.service.return_value = mock.Mock(
            disabled=False, zone='z')
        self.backend.ask.return_value = {
            'room': {'volumes': 5 << 30, 'metadata': 1 << 30,
                     'shared': False}, 'problems': []}, ''

    def listed(self, *words, code=0):
        found, out, err = self.run_command(*words, '--json')
        self.assertEqual(code, found, err)
        return json.loads(out)


class NodesTest(Base):

    def test_figures_are_numbers(self):
        first, second = self.listed('nodes')
        self.assertEqual(
            [A, 'up', 'z', 1, 2, 5, 0, 1, 0, 0, ''],
            list(first.values())[:-1])
        self.assertEqual(
            [B, 'up', 'z', 1, 2, 5, 1, 0, 2, 1, ''],
            list(second.values())[:-1])
        self.assertEqual(
            {'ready': True, 'up': True, 'disabled': False,
             'free_bytes': 5 << 30, 'free_metadata_bytes': 1 << 30},
            first['Fields'])

    def test_one_that_is_down_is_not_asked(self):
        self.backend.nodes.return_value = {A: False}
        row, = self.listed('nodes', code=1)
        self.assertEqual(('down', None), (row['Service'], row['Free GiB']))
        self.backend.ask.assert_not_called()

    def test_one_that_cannot_take_volumes(self):
        for self.backend.ask.return_value, words in (
                ((None, 'did not answer'), 'did not answer'),
                (({'room': {'volumes': 0, 'metadata': 0},
                   'problems': ['no dm-clone']}, ''), 'no dm-clone')):
            self.records.service.return_value.disabled = True
            for row in self.listed('nodes', code=1):
                self.assertIn('disabled', row['Remark'])
                self.assertIn(words, row['Remark'])

    def test_a_table_has_no_fields(self):
        self.assertNotIn('Fields', self.run_command('nodes')[1])


class VolumesTest(Base):

    def test_all(self):
        first, second = self.listed('volumes')
        self.assertEqual(
            [V1, 'one', A, 'available', 2, 'a, ?', '', ''],
            list(first.values())[:-1])
        self.assertEqual(
            [V2, '', B, 'available', 2, '', 'Nova', 'migrating, from ' + A],
            list(second.values())[:-1])
        self.assertEqual((2 << 30, ['a', ''], None), tuple(
            first['Fields'][key] for key in (
                'size_bytes', 'attached_on', 'move')))
        self.assertEqual(
            {'source': A, 'destination': B, 'phase': 'migrating',
             'committed': True}, second['Fields']['move'])

    def test_a_name_makes_no_rows(self):
        """Its owner gives it, and may not tell an operator anything else."""
        name = 'a\n| %s | b\x1b[2J\u202e' % V3
        self.records.all_volumes.return_value = [
            inventory_rows.row(V1, A, display_name=name)]
        _code, out, _err = self.run_command('volumes')
        self.assertEqual(5, len(out.splitlines()), out)
        self.assertIn('a?| %s | b?[2J? ' % V3, out)
        row, = self.listed('volumes')
        self.assertEqual(name, row['Name'])

    def test_of_a_node(self):
        for name in ('b', B):
            row, = self.listed('volumes', '--node', name)
            self.assertEqual(V2, row['Volume'])
        _code, _out, err = self.run_command('volumes', '--node', 'x')
        self.assertIn('x is no node of the backend; there are: a@l, b@l', err)

    def test_what_is_over_is_no_move(self):
        self.records.all_moves.return_value = [inventory.Under(
            inventory_rows.moving(V2, Phase.RELEASING), 0.0)], 0
        self.assertEqual(['', ''], [
            row['Move'] for row in self.listed('volumes')])

    def test_who_encrypts(self):
        for provider, who in (
                (None, ''), ('lc1:odd', 'unknown'),
                (str(volumes.volume_types.Recorded(1 << 24, 'k')),
                 'driver')):
            self.assertEqual(who, volumes.encrypted_by(
                inventory_rows.row(V1, provider_id=provider)))


class NamesTest(Base):

    def found(self, *ids, name='data'):
        backend = mock.Mock(spec=backends.Backend)
        backend.name = 'l'
        backend.records.ids_named.return_value = list(ids)
        return backends.Backend.find(backend, name)

    def test_one(self):
        self.assertEqual(V1, self.found(V1))

    def test_none(self):
        error = self.assertRaises(errors.CommandError, self.found)
        self.assertIn('There is no volume data', str(error))

    def test_more_than_one_lists_the_ids(self):
        error = self.assertRaises(errors.CommandError, self.found, V1, V2)
        self.assertIn('%s, %s' % (V1, V2), str(error))

    def test_nothing_is_no_name(self):
        """Of a variable that is not set: neither all, nor one unnamed."""
        self.assertRaises(errors.CommandError, self.found, V1, name='')
        for words in (['repair', ''], ['encryption', 'unlock', '']):
            with mock.patch.object(main.LocalClone, 'volume_id',
                                   side_effect=errors.CommandError('none')):
                code, _out, err = self.run_command(*words)
            self.assertEqual((1, 'none\n'), (code, err), words)

    def test_every_command_that_takes_a_volume_takes_a_name(self):
        """But for those that ask no database."""
        for name, where in {**main.COMMANDS, **main.HIDDEN}.items():
            module, _colon, kind = where.partition(':')
            command = getattr(__import__(
                'cinder_localclone.cmd.' + module, fromlist=[kind]), kind)
            parser = command(main.LocalClone(), None).get_parser(name)
            if 'VOLUME' in parser.format_help():
                self.assertEqual(
                    command.takes_names, 'or name' in parser.format_help(),
                    name)
                self.assertEqual(
                    name in ('unlock', 'encryption run'),
                    not command.takes_names, name)

    def test_the_command_gets_the_id(self):
        self.backend.find.side_effect = {'data': V1}.__getitem__
        self.backend.volume.return_value = None, inventory_rows.moving()
        row, = self.listed('abort', 'data')
        self.assertEqual(V1, row['Volume'])
        self.backend.call.assert_called_once_with(B, 'abort', V1)

    def test_an_id_needs_no_look(self):
        self.assertEqual(V1, main.LocalClone.volume_id(None, V1))


@ddt.ddt
class PackagesTest(testtools.TestCase):

    @ddt.data(({'ID': 'debian'}, packages.DEB),
              ({'ID': 'linuxmint', 'ID_LIKE': 'ubuntu debian'}, packages.DEB),
              ({'ID': 'rocky', 'ID_LIKE': 'rhel centos fedora'},
               packages.RPM), ({'ID': 'fedora'}, packages.RPM),
              ({'ID': 'opensuse-leap', 'ID_LIKE': 'suse opensuse'},
               packages.SUSE),
              ({'ID': 'sles'}, packages.SUSE), ({'ID': 'gentoo'}, ''),
              ({}, ''))
    @ddt.unpack
    def test_family(self, fields, how):
        self.assertEqual(how, packages.family(fields))

    def test_host_that_does_not_say_what_it_is(self):
        with mock.patch.object(doctor.platform, 'freedesktop_os_release',
                               side_effect=OSError('no os-release')):
            self.assertEqual('', packages.family(doctor._os_release()))

    def test_commands(self):
        for how, said in (
                (packages.DEB, 'apt install open-iscsi '
                               'thin-provisioning-tools'),
                (packages.RPM, 'dnf install device-mapper-persistent-data '
                               'iscsi-initiator-utils'),
                (packages.SUSE, 'zypper install open-iscsi '
                                'thin-provisioning-tools')):
            found, = checks.commands(lambda name: name not in (
                'thin_check', 'thin_dump', 'iscsiadm') or None, how)
            self.assertEqual(said, found.fix)
        found, = checks.commands(lambda name: None)
        for each in ('apt install', 'dnf install', 'zypper install'):
            self.assertIn(each, found.fix)

    def test_every_command_has_its_package(self):
        self.assertLessEqual(set(checks.COMMANDS), set(packages.PACKAGES))

    def test_others(self):
        self.assertIn('com.redhat', checks.initiator(
            '', packages.RPM)[0].fix)
        self.assertIn('org.debian', checks.initiator('')[0].fix)
        self.assertIn('dnf install cryptsetup', encryption.version(
            '', packages.RPM)[0].fix)
