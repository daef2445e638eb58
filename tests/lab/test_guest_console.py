# SPDX-License-Identifier: Apache-2.0
"""What is read from the console of the lab's guest."""

import testtools

from lab.guest import console as guest_console

VOLUME = '1fc86241-2ab6-40e1-a2e4-43a4874c0f10'
FOUND = 'found vda serial=1fc86241-2ab6-40e1-a blocks=%d sum=9 seq=%d torn=0'
GUEST = ('guest vda serial=1fc86241-2ab6-40e1-a up=2.9 seq=%d reads=1 '
         'sweeps=0 blocks=7 bad=%d errors=0 worst_ms=8')
LOST = 'BAD vda lost: the newest block knows of a sum of 9, found 8'


def console(*lines):
    return guest_console.Console('\r\n'.join(lines))


class ConsoleTest(testtools.TestCase):

    def test_only_the_last_boot_counts(self):
        found = console('guest is up', FOUND % (0, 0), GUEST % (7, 0),
                        'guest is up', FOUND % (7, 9))
        self.assertIsNone(found.of(VOLUME))
        self.assertEqual(
            9, found.found[guest_console.serial(VOLUME)]['seq'])
        self.assertTrue(found.clean)

    def test_a_copy_of_another_disk(self):
        copied = FOUND.replace('found', 'copy') % (7, 9)
        found = console('guest is up', copied, FOUND % (0, 0))
        serial = guest_console.serial(VOLUME)
        self.assertEqual((9, 0), (found.copies[serial]['seq'],
                                  found.found[serial]['seq']))
        self.assertEqual({}, console(copied, 'guest is up').copies)

    def test_a_block_once_wrong_stays_known(self):
        for lines in ((LOST, 'guest is up', GUEST % (7, 0)),
                      ('guest is up', GUEST % (7, 1))):
            self.assertFalse(console(*lines).clean)
