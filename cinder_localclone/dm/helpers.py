# SPDX-License-Identifier: Apache-2.0
"""What cryptsetup has below the top of a volume while it re-encrypts. Pure."""

import re

from cinder_localclone import names

_NAME = re.compile('localclone-crypt-(%s)-(overlay|hotzone-(for|back)ward)'
                   % names.UUID)


def names_of(volume_id: str) -> list[str]:
    """How such devices of a volume are called."""
    return ['%s-%s' % (names.crypt(volume_id), kind)
            for kind in ('overlay', 'hotzone-forward', 'hotzone-backward')]


def volume_of_helper(name: str, uuid: str) -> str | None:
    """The volume id in the name of such a device.

    :param uuid: its device-mapper UUID, which cryptsetup makes
    :returns: None if it is no such device, or another's
    """
    match = _NAME.fullmatch(name)
    own = re.fullmatch('CRYPT-SUBDEV-[0-9a-f]{32}-' + re.escape(name), uuid)
    return match.group(1) if match and own else None
