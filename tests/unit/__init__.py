# SPDX-License-Identifier: Apache-2.0
import logging

from cinder import objects

objects.register_all()
# What the driver logs in a test that passes is not printed: a traceback
# would hide that of a test which fails.
logging.getLogger().handlers[:] = [logging.NullHandler()]
