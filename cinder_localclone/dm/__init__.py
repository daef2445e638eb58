# SPDX-License-Identifier: Apache-2.0
"""Device-mapper's tables, status lines and listings as values.

The commands are in ``privileged.devicemapper``.
"""
