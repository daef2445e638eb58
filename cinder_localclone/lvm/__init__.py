# SPDX-License-Identifier: Apache-2.0
"""LVM's reports as values. The commands are in ``privileged.lvm``."""
