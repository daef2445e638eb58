# SPDX-License-Identifier: Apache-2.0
"""The backend that a command is about, from Cinder's own configuration."""

import os

from cinder.common import config  # noqa: F401, registers Cinder's options
from cinder import context
from cinder import rpc
from cinder import version
from cinder.volume import configuration
from cinder.volume.drivers import lvm as cinder_lvm
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_messaging import opts as messaging

from cinder_localclone import exceptions
from cinder_localclone import opts
from cinder_localclone import peer
from cinder_localclone import privileged
from cinder_localclone import records
from cinder_localclone import sessions
from cinder_localclone import stack

CONF = cfg.CONF
DRIVER = 'cinder_localclone.driver.LocalCloneDriver'
TIMEOUT = 50  # seconds for a peer's work


def load(files) -> None:
    """Read configuration files; the default is Cinder's."""
    CONF([], project='cinder', version=version.version_string(),
         default_config_files=files or None)
    for group, found in messaging.list_opts():
        CONF.register_opts(found, group)


def sections() -> list[str]:
    """The enabled backends that use this driver."""
    found = []
    for name in CONF.enabled_backends or ():
        section = configuration.Configuration(
            [cfg.StrOpt('volume_driver')], config_group=name)
        if section.safe_get('volume_driver') == DRIVER:
            found.append(name)
    return found


class Backend:
    """One backend section on this node.

    :param name: of the section; None: the only one there is
    :raises LocalCloneError: if that is not clear
    """

    def __init__(self, name: str | None = None):
        known = sections()
        if name is None and len(known) != 1:
            raise exceptions.LocalCloneError(
                reason='enabled_backends has %s with volume_driver = %s; '
                'name one with --backend' % (
                    ' and '.join(known) or 'none', DRIVER))
        self.name = name or known[0]
        if self.name not in known:
            raise exceptions.LocalCloneError(
                reason='"%s" is no enabled backend with volume_driver = %s'
                % (self.name, DRIVER))
        self.conf = configuration.Configuration(
            cinder_lvm.volume_opts + opts.localclone_opts,
            config_group=self.name)
        self.host = '%s@%s' % (CONF.host, self.name)
        self._context = None

    # -- this node

    def act_as_root(self) -> None:
        """Do privileged work in this process instead of a daemon.

        :raises LocalCloneError: if it is not root's
        """
        if os.geteuid():
            raise exceptions.LocalCloneError(
                reason='this needs root: run it with sudo')
        privileged.default.set_client_mode(False)

    def stack(self) -> stack.Stack:
        group = self.conf.volume_group
        pool = None if self.conf.lvm_type == 'default' else group + '-pool'
        return stack.Stack(
            group, pool, self.conf.localclone_metadata_group or group,
            self.conf.localclone_command_timeout)

    def imports(self) -> sessions.Sessions:
        return sessions.Sessions(
            self.conf.localclone_command_timeout,
            self.conf.localclone_source_timeout)

    # -- all nodes

    @property
    def context(self):
        """The admin context; the message bus is connected with it."""
        if self._context is None:
            if not rpc.initialized():
                rpc.init(CONF)
            self._context = context.get_admin_context()
        return self._context

    @property
    def peers(self) -> peer.Client:
        return peer.Client(TIMEOUT)

    @property
    def records(self) -> records.Records:
        return records.Records()

    def nodes(self) -> dict[str, bool]:
        """Service hosts of this backend and whether they are alive."""
        return {host: alive
                for host, alive in sorted(self.records.services().items())
                if host.partition('@')[2] == self.name}

    def ask(self, host: str, method: str, *arguments):
        """Ask a node; (answer, '') or (None, why there is none)."""
        try:
            return getattr(self.peers, method)(
                self.context, host, *arguments), ''
        except exceptions.LocalCloneError as exc:
            return None, str(exc)

    def volume(self, volume_id: str):
        """:raises LocalCloneError: if there is neither it nor a move"""
        found = self.records.volume(volume_id)
        move = self.records.move_of(volume_id)
        if found is None and move is None:
            raise exceptions.LocalCloneError(
                reason='there is no volume %s' % volume_id)
        return found, move


def lv_of(volume) -> str | None:
    return volume.name if volume is not None else None


def home_of(volume) -> str | None:
    """The service host of a volume, without the pool."""
    return (volume_utils.extract_host(volume.host)
            if volume is not None else None)
