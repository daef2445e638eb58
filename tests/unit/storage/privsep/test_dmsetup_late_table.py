# SPDX-License-Identifier: Apache-2.0
"""A table whose load was given up is never taken by a later resume."""

from cinder_localclone.core import exceptions
from cinder_localclone.storage.privsep import dmsetup
from tests.helpers import commands
from tests.unit.storage.privsep import test_dmsetup as test_devicemapper

C = test_devicemapper.C
TABLE = test_devicemapper.TABLE


class LateTableTest(commands.Case):

    def setUp(self):
        super().setUp()
        #: What is loaded for the next resume; what resumes have taken.
        self.loaded, self.taken = ['late'], []
        answer = self.commands._answer

        def kernel(line):
            found = answer(line)
            what = line.split()[1]
            if what in ('clear', 'resume'):
                self.taken += self.loaded if what == 'resume' else []
                self.loaded = []
            elif what == 'load' and not found[1]:
                self.loaded = ['new']
            return found
        self.commands._answer = kernel

    def test_a_clone_that_has_failed(self):
        """What its guest has written vanishes, and nobody is told.

        1. A clone's source has come back under another number; the disk of
           its metadata hangs. "dmsetup load" is given up at its time limit,
           the clone resumed on its old table, and written.
        2. The disk answers again: what was asked for goes on in the kernel,
           and the table stays loaded beside the one in use. It knows what
           was local when it was loaded, not what is by now.
        3. The disk fails for good, and the clone with it. The next look
           suspends it, sees that, loads nothing and resumes it: that takes
           the table of 1, which works, and shows the source's bytes where
           the guest has written since.

        By design: what is loaded is cleared before the clone is suspended.
        """
        for status in '0 8 clone Fail', '0 8 clone 8 1/9 128 0/9 0 0 0 ro':
            self.loaded = ['late']
            self.commands.answer('ioctl status', status, times=1)
            dmsetup.replace_suspended(C, TABLE, 30, True)
            self.assertEqual([], self.taken)

    def test_a_new_table_that_is_refused(self):
        """The same with 3: the new table can't be loaded."""
        self.commands.answer('dmsetup load', code=1, err='no such device')
        self.assertRaises(
            exceptions.CommandFailed, dmsetup.replace_suspended, C,
            TABLE, 30)
        self.assertEqual([], self.taken)

    def test_the_new_one_is_taken(self):
        dmsetup.replace_suspended(C, TABLE, 30)
        self.assertEqual(['new'], self.taken)
