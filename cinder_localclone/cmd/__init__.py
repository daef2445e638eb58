# SPDX-License-Identifier: Apache-2.0
"""The operator's command, ``cinder-localclone``."""

from cinder import objects

objects.register_all()  # Cinder's drivers can't be imported before
