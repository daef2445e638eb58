# SPDX-License-Identifier: Apache-2.0
"""Volumes that are extended."""

from lab.operations import operation
from lab.operations.operation import must
from lab.operations import subject as subjects


class Extend(operation.Operation):
    name = 'extend'

    def ask(self):
        subject = self.subject
        before = subject.row()
        size, status = before['size'] + 1, before['status']
        subject.act('os-extend', new_size=size)

        def ended():
            row = subject.row()
            if row['status'].startswith('error'):
                raise subjects.Refused('status ' + row['status'])
            return row['status'] == status and row['size'] == size
        try:
            subjects.wait('the extension', ended, self.seconds)
        except subjects.Refused:
            # Cinder has no other end for what a driver refuses.
            subject.admin('os-reset_status', status=status)
            raise
        subject.mib = size * subjects.GIB
        self._prove()
        return 'works'

    def _prove(self):
        """Whoever has it goes on, and sees all of it, with zeros at its end.

        Also where it is passed through.
        """
        subject = self.subject
        subject.check_running()
        node = subject.runs_on or self.node(subject.home())
        subject.verify(node)
        shown = int(node.run('blockdev --getsize64 ' + subject.path).stdout)
        must(shown == subject.mib << 20, '%d bytes are shown' % shown)


class ExtendInUse(Extend):
    name = 'extend in use'
    in_use = True


OPERATIONS = (Extend, ExtendInUse)
