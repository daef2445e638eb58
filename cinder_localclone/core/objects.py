# SPDX-License-Identifier: Apache-2.0
"""Aliases of Cinder's objects in signatures.

Their classes differ between Cinder's releases and are not typed.
"""

from collections.abc import Mapping
import typing

#: A request context of Cinder (``cinder.context.RequestContext``).
Context: typing.TypeAlias = typing.Any
#: A volume with its attachments (``cinder.objects.Volume``).
Volume: typing.TypeAlias = typing.Any
#: A snapshot (``cinder.objects.Snapshot``).
Snapshot: typing.TypeAlias = typing.Any
#: A backup (``cinder.objects.Backup``).
Backup: typing.TypeAlias = typing.Any
#: os-brick's properties of a host: host, ip, initiator and more.
Connector: typing.TypeAlias = dict[str, typing.Any]
#: An attachment (``cinder.objects.VolumeAttachment``).
Attachment: typing.TypeAlias = typing.Any
#: The attachments of a volume by id. The value has ``host`` and ``initiator``
#: of its connector; None without a connector.
Attachments: typing.TypeAlias = Mapping[
    str, Mapping[str, str | None] | None]
#: The connection of a volume to a host, for os-brick.
Properties: typing.TypeAlias = Mapping[str, typing.Any]
