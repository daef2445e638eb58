# SPDX-License-Identifier: Apache-2.0
"""Options of cryptsetup, and the progress that it prints."""

import ddt
import testtools

from cinder_localclone.core.formats import cryptsetup_cli
from cinder_localclone.core import volume_types
from cinder_localclone.core.volume_types import KeyFormat

UUID = '11111111-2222-4333-8444-555555555555'


@ddt.ddt
class ProgressTest(testtools.TestCase):

    #: In the form of cryptsetup(8).
    LINE = ('{"device":"/dev/sda","device_bytes":"%d","device_size":'
            '"44040192","speed":"126877696","eta_ms":"2520012","time_ms":'
            '"5561235"}\n')

    def test_the_last_line_that_is_complete(self):
        found = cryptsetup_cli.last_progress(
            self.LINE % 8192 + self.LINE % 11010048
            + '{"device":"/dev/sda","device_bytes":"1')
        self.assertEqual(cryptsetup_cli.Progress(
            done=11010048, total=44040192, rate=126877696,
            seconds_left=2520.012), found)
        self.assertEqual(25, found.percent)

    @ddt.data('', 'Device /dev/sda is in use.\n', '[]\n', '{}\n', '7\n',
              '{"device_bytes":"x","device_size":"1","speed":"1",'
              '"eta_ms":"1"}\n')
    def test_other_words(self, text):
        self.assertIsNone(cryptsetup_cli.last_progress(text))
        self.assertEqual(
            8192, cryptsetup_cli.last_progress(self.LINE % 8192 + text).done)

    def test_of_nothing_all_is_done(self):
        self.assertEqual(100, cryptsetup_cli.Progress(0, 0, 0, 0).percent)


class OptionsTest(testtools.TestCase):

    def test_of_a_new_header(self):
        """These, cryptsetup 2.6.1 has accepted."""
        self.assertEqual([
            '--type', 'luks2', '--uuid', UUID, '--offset', '32768',
            '--cipher', 'aes-xts-plain64', '--key-size', '512',
            '--sector-size', '512', '--key-slot', '0', '--pbkdf', 'pbkdf2',
            '--pbkdf-force-iterations', '1000'],
            cryptsetup_cli.new_header(volume_types.Encryption(), UUID).words())

    def test_guessing_a_passphrase_takes_time(self):
        found = cryptsetup_cli.new_header(volume_types.Encryption(
            shared_key='x', key_format=KeyFormat.PASSPHRASE), UUID).words()
        self.assertIn('argon2id', found)
        self.assertNotIn('--pbkdf-force-iterations', found)

    def test_integrity(self):
        found = cryptsetup_cli.new_header(volume_types.Encryption(
            cipher='aes-gcm-random', key_bits=256, integrity='aead'),
            UUID).words()
        self.assertEqual(['--integrity', 'aead'], found[-2:])
        self.assertNotIn('--integrity', cryptsetup_cli.new_header(
            volume_types.Encryption(), UUID).words())

    def test_of_opening(self):
        plain = cryptsetup_cli.open_options(False, False, False)
        for number, option in enumerate((
                '--readonly', '--disable-locks', '--allow-discards')):
            self.assertNotIn(option, plain)
            self.assertEqual({option}, set(cryptsetup_cli.open_options(*[
                each == number for each in range(3)])) - set(plain))
