# SPDX-License-Identifier: Apache-2.0
"""Aliases of the types of Cinder's objects, for signatures.

Their classes differ between Cinder's releases and are not typed.
"""

from collections.abc import Mapping
import typing

#: A request context of Cinder (``cinder.context.RequestContext``).
Context: typing.TypeAlias = typing.Any
#: A volume as Cinder's manager has it (``cinder.objects.Volume``). The driver
#: makes a :class:`.core.volume.Volume` of it.
Volume: typing.TypeAlias = typing.Any
#: A snapshot (``cinder.objects.Snapshot``).
Snapshot: typing.TypeAlias = typing.Any
#: A backup (``cinder.objects.Backup``).
Backup: typing.TypeAlias = typing.Any
#: A host to connect to, described by os-brick: host, ip, initiator and more.
Connector: typing.TypeAlias = dict[str, typing.Any]
#: An attachment (``cinder.objects.VolumeAttachment``).
Attachment: typing.TypeAlias = typing.Any
#: The attachments of a volume, as a request carries them: by attachment id,
#: ``host`` and ``initiator`` of the connector; None without a connector.
Attachments: typing.TypeAlias = Mapping[
    str, Mapping[str, str | None] | None]
#: The home's export of a volume, for os-brick: ``data`` of the connection.
Properties: typing.TypeAlias = Mapping[str, typing.Any]
