# SPDX-License-Identifier: Apache-2.0
"""Where things are in sysfs (the kernel's Documentation/ABI)."""

import os

ROOT = '/sys'


def of_disk(path: str, *entry: str) -> str:
    """The path of a block device's entry in sysfs.

    :param path: of the device, or of a link to it
    :param entry: for example ``'queue', 'discard_max_bytes'``
    """
    name = os.path.basename(os.path.realpath(path))
    return os.path.join(ROOT, 'block', name, *entry)


def iscsi_session(*entry: str) -> str:
    """The path of an entry in the directory of all iSCSI sessions."""
    return os.path.join(ROOT, 'class', 'iscsi_session', *entry)
