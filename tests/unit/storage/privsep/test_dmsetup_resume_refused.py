# SPDX-License-Identifier: Apache-2.0
"""No device stays suspended if the kernel refuses to take its new table."""

from cinder_localclone.core import exceptions
from cinder_localclone.storage.privsep import dmsetup
from tests.helpers import commands
from tests.unit.storage.privsep import test_dmsetup as test_devicemapper

C = test_devicemapper.C
TABLE = test_devicemapper.TABLE


class ResumeRefusedTest(commands.Case):

    def test_back_on_the_old_table(self):
        """A guest hangs for good.

        1. A clone's source has come back under another number: suspended,
           loaded, resumed.
        2. The kernel takes the table at load, but not at resume: it reaches
           beyond the end of what it is on, or the limits of the devices
           below do not fit. It then drops that table, and leaves the device
           suspended (measured: facts on extending, EINVAL).

        Each later look does the same again, so all I/O of the guest waits
        for ever, though the old table is there and works.

        By design: as :func:`.dmsetup.swap_table` has it: what is
        loaded is cleared, and the device resumed on its old table. What was
        written is flushed by then, so that is as right as the new one.
        """
        self.commands.answer('dmsetup resume', code=1, err='EINVAL', times=1)
        error = self.assertRaises(
            exceptions.CommandFailed, dmsetup.replace_suspended, C,
            TABLE, 30)
        self.assertIn('EINVAL', str(error))
        self.assertEqual(
            ['dmsetup resume ' + C, 'dmsetup clear ' + C,
             'dmsetup resume ' + C], self.commands.ran[-3:])
