# SPDX-License-Identifier: Apache-2.0
"""The operator's command, ``cinder-localclone``."""

import warnings

# Cinder imports eventlet, which prints a deprecation warning to the operator.
# The command starts no green thread.
warnings.filterwarnings('ignore', r'\s*Eventlet is deprecated')
