# SPDX-License-Identifier: Apache-2.0
"""What each process does that runs unit tests, before the first."""

import functools

from cinder import objects
from oslo_privsep import priv_context

from tests.helpers import complaints
from tests.helpers import running
from tests.helpers import specs


def _start(_context, method=None):
    raise complaints.note('no unit test starts a privileged daemon')


@functools.cache
def prepare() -> None:
    """Prepare this process, once."""
    objects.register_all()
    priv_context.PrivContext.start = _start
    running.install(log=True)
    specs.install()
