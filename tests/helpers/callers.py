# SPDX-License-Identifier: Apache-2.0
"""Who calls a node: the driver, or another node."""

from unittest import mock

from cinder_localclone.cmd.node import forget as forgetting
from cinder_localclone.core import exceptions
from cinder_localclone.core import rpc
from cinder_localclone.service import endpoint  # noqa: F401, has all methods
from cinder_localclone.volumes import delete as deletion
from cinder_localclone.volumes import homes
from cinder_localclone.volumes import manage as managing
from cinder_localclone.volumes import revert as reverting


def delete(node, volume):
    """The driver deletes a volume, wherever its home is."""
    recorded = node.volumes.volume(volume.id)
    if recorded is not None:
        rpc.call_at_home(deletion.delete, node, recorded)


def unmanage(node, volume_id):
    """The driver leaves the LV of a volume, wherever its home is."""
    recorded = node.volumes.volume(volume_id)
    if recorded is not None:
        rpc.call_at_home(managing.unmanage, node, recorded)


def revert(reconciler, volume_id, snapshot_id):
    """The driver reverts a volume, wherever its home is."""
    rpc.call_at_home(reverting.revert, reconciler,
                     reconciler.node.volumes.volume(volume_id), snapshot_id)


def has_lv(world):
    """The operator's command asks a node of a world for a volume's LV."""
    def asked(volume, host):
        if world.nodes[host].dead:
            raise exceptions.PeerUnreachable(
                host=host, method='has_lv', seconds=8)
        return homes.has_lv(world.nodes[host].node, volume.id, volume.name)
    return asked


def plan_to_forget(world, host, new_home, has_lv=has_lv):
    """The steps of "node forget", run at the new home of what is lost."""
    return forgetting.plan(
        world.nodes[new_home].make_database(), host, new_home + '#p',
        lambda move: None, has_lv(world))


def take(steps):
    """Take each step that does something."""
    for step in steps:
        if step.act:
            step.act()


class Answers:
    """A node that another one asks: ``answers.method(...)``.

    :param service: of the node
    """

    def __init__(self, service):
        self._service = service

    def __getattr__(self, name):
        method = rpc.METHODS[name]
        return lambda *args, **kwargs: method.answer(
            self._service, method.bind(*args, **kwargs))


class Calls(rpc.Calls):
    """Mocks of what other nodes answer, by the names of methods.

    ``calls.prepare`` is called with the host and the arguments; what is cast
    has ``_soon`` behind its name.
    """

    def __init__(self):
        self.mocks = mock.MagicMock(
            spec=[*rpc.METHODS, 'reconcile_soon'])

    def __getattr__(self, name):
        return getattr(self.mocks, name)

    def call(self, host, method, arguments):
        return getattr(self.mocks, method.name)(host, *arguments.values())

    def cast(self, host, method, arguments):
        getattr(self.mocks, method.name + '_soon')(host, *arguments.values())
