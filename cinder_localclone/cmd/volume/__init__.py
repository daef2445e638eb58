# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone volume``: the volumes of a backend."""
