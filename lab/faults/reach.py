# SPDX-License-Identifier: Apache-2.0
"""An operation on its way to its step, or past its end without it.

How often a look at a volume does something depends on when it comes, so an
operation may end without having come to the third time of a step. That is no
fault and no proof: it is told apart, and soon.
"""

import time

from lab.core import observe
from lab.core import process
from lab.faults import environment as environments

#: Seconds within which an operation must come to a step, or end.
REACH = 240
#: Seconds without any step after which an operation whose requests are
#: answered, and of which the database knows no move, has ended: longer than
#: the nodes' looks are apart.
QUIET = environments.OPTIONS['localclone_reconcile_interval'] + 5

#: What a request that has met its time limit is answered with. These nodes
#: are slow and share two processors with all else: it may be sent again.
#: Cinder does not say why it has failed to end an attachment.
TOO_SLOW = ('did not answer', 'is down', 'computeFault')


class Way:
    """One operation, armed to stay at its step."""

    def __init__(self, environment, operation):
        self.environment = environment
        self.operation = operation
        self._asked_again = False
        self._marks = None
        self._since = 0

    def _there(self):
        return self.environment.reached(self.operation.disk)

    def ask(self):
        """Send the requests; returns when they are answered, or when the
        operation is at its step.

        :raises LabError: if one is refused; too late is once asked again
        """
        self.operation.start()
        process.wait_for(
            'an answer, or the step',
            lambda: self._there() or self.operation.answered, REACH)
        error = self.operation.error
        if error is None or self._there():
            return
        if self._asked_again or not any(
                text in str(error) for text in TOO_SLOW):
            raise error
        self._asked_again = True
        self.environment.say('    asked again: %s' % str(error)[:200])
        self.operation.forget_failure()
        self.ask()

    def wait(self):
        """Whether the operation comes to its step; False when it has ended.

        :raises LabError: if it neither comes there nor ends
        """
        process.wait_for('the step, or the end',
                         lambda: self._there() or self._is_over(), REACH)
        return self._there()

    def _is_over(self):
        if not self._is_quiet():
            return False
        self._since = time.monotonic()  # to look again not at once
        if not self.operation.is_over():
            return False
        volume = self.operation.disk.volume
        return not any(moving == volume for moving, _token
                       in observe.move_records(self.environment.lab))

    def _is_quiet(self):
        marks = self.environment.step_marks(self.operation.disk)
        if marks != self._marks:
            self._marks, self._since = marks, time.monotonic()
        return (self.operation.answered
                and time.monotonic() - self._since > QUIET)
