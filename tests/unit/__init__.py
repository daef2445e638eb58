# SPDX-License-Identifier: Apache-2.0
from cinder import objects

from tests import running

objects.register_all()
running.install(log=True)
