# SPDX-License-Identifier: Apache-2.0
"""The operator's command, ``cinder-localclone``."""

import warnings

# Cinder imports eventlet, which announces its end to whoever runs a command.
# The command starts no green thread.
warnings.filterwarnings('ignore', r'\s*Eventlet is deprecated')
