# SPDX-License-Identifier: Apache-2.0
"""cinder-api, in a lab for faults: see :mod:`.answers`."""

import os

from cinder.wsgi import api

from lab.faults import answers

answers.install(os.environ[answers.VARIABLE])
application = api.application
