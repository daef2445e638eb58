# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone encryption``."""
