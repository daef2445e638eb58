# SPDX-License-Identifier: Apache-2.0
"""Barbican's API: its own module reads a file in /etc, which is not there."""

import sys

from paste import deploy

application = deploy.loadapp(
    'config:%s/etc/barbican/barbican-api-paste.ini' % sys.prefix)
