# SPDX-License-Identifier: Apache-2.0
"""``make encryption``: its steps, and how keys are looked for."""

import base64
import inspect
import io
import pathlib
from unittest import mock

import ddt
import fixtures
from rich import console
import testtools

from lab.core import capture
from lab.core import process
from lab.core import report
from lab.encryption import by_driver
from lab.encryption import chapter
from lab.encryption import story
from lab.keys import leaks
from lab.keys import volumes

SECRET = bytes(range(0xc0, 0xe0))
KEY = SECRET.hex().encode()


class Told(chapter.Chapter):
    STEPS = {'first': 'one', 'second': 'two', 'third': 'three'}

    def __init__(self, *args):
        super().__init__(*args)
        self.done = []

    def first(self, row):
        self.done.append('first')

    def second(self, row):
        self.done.append('second')
        raise process.LabError('no')

    third = first


class ChapterTest(testtools.TestCase):

    def test_after_a_step_that_fails_none_is_run(self):
        lab = mock.Mock(nodes={'node1': None, 'node2': None})
        self.patch(leaks, 'Listener', mock.MagicMock())
        steps = report.Report(console.Console(file=io.StringIO()), 'title')
        told = Told(lab, steps, story.WAYS[0](lab, 'admin'))
        told.run()
        self.assertEqual(['ok', 'FAILED', 'not run'],
                         [row.verdict for row in steps.rows])
        self.assertEqual(['first', 'second'], told.done)
        self.assertEqual({'by Nova'}, {row.part for row in steps.rows})

    def test_each_step_has_a_method(self):
        for kind in chapter.Chapter, by_driver.Chapter:
            for name in kind.STEPS:
                self.assertEqual(['self', 'row'], list(inspect.signature(
                    getattr(kind, name)).parameters), name)
            self.assertEqual(chapter.LAST, tuple(kind.STEPS)[-2:])
        self.assertEqual({'rotate', 'anew', 'recovery', 'lost'}, set(
            by_driver.Chapter.STEPS) - set(chapter.Chapter.STEPS))

    def test_ways(self):
        self.assertEqual(
            [((1 << 30) - (2 << 20), 1 << 30),
             (1 << 30, (1 << 30) + (16 << 20))],
            [(each.bytes_of(1), each.lv_bytes(1)) for each in (
                way.__new__(way) for way in story.WAYS)])
        self.assertEqual(['by Nova', 'by the driver'],
                         [way.name for way in story.WAYS])
        self.assertEqual(b'olclacol', volumes.GUESTS_MARK)


@ddt.ddt
class LeaksTest(testtools.TestCase):

    @ddt.data(KEY, KEY.upper(), SECRET, base64.b64encode(SECRET),
              base64.b64encode(KEY), base64.urlsafe_b64encode(SECRET))
    def test_a_key_is_found(self, form):
        self.assertTrue(leaks.is_in(b'{"a": "' + form + b'"}', [b'00', KEY]))

    def test_another_is_not(self):
        self.assertFalse(leaks.is_in(SECRET[1:] + KEY[:-1] + b'x', [KEY]))

    def test_logs(self):
        logs = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (logs / 'api.log').write_bytes(b'nothing')
        (logs / 'node1.log').write_bytes(b'a: ' + base64.b64encode(SECRET))
        self.assertEqual(['log node1.log'], leaks.in_logs(logs, [KEY]))


class PayloadTest(testtools.TestCase):

    def test_bytes_of_a_packet(self):
        ip = bytearray(20)
        ip[0], ip[9] = 0x45, 6
        ip[2:4] = (20 + 24 + 5).to_bytes(2, 'big')
        ip[12:20] = bytes(range(8))
        tcp = bytearray(24)
        tcp[0:4], tcp[12] = b'\x16\x28\x9c\x40', 0x60
        packet = bytes(12) + b'\x08\x00' + bytes(ip) + bytes(tcp) + (
            b'hello' + bytes(3))
        self.assertTrue(capture.is_of_port(packet, 5672))
        self.assertEqual(((bytes(range(8)), bytes(tcp[:4])), b'hello'),
                         capture.payload(packet))
