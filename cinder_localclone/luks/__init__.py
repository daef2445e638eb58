# SPDX-License-Identifier: Apache-2.0
"""LUKS2 headers, tokens and cryptsetup's options as values. Pure."""
