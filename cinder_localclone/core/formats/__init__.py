# SPDX-License-Identifier: Apache-2.0
"""Formats of LVM, device-mapper, LUKS2 and cryptsetup, as values.

Parsers and builders only. :mod:`.storage.privsep` runs the commands.
"""
