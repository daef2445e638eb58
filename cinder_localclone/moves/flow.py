# SPDX-License-Identifier: Apache-2.0
"""Running the steps of a move as a TaskFlow flow."""

import typing

import taskflow.engines
from taskflow.patterns import linear_flow
from taskflow import task

from cinder_localclone.core.node import Node


class Step(task.Task):
    """One step of a flow, on this node.

    TaskFlow passes the arguments of ``execute`` by their names: what the flow
    was started with, and what earlier steps provide.

    :param name: for a step that a flow takes twice
    """

    def __init__(self, node: Node, name: str | None = None):
        super().__init__(name)
        self._node = node


def run(flow: linear_flow.Flow, **store: typing.Any
        ) -> dict[str, typing.Any]:
    """Run a flow; the error of a step that failed is raised as itself.

    :param store: what the steps are given
    :returns: that, and what the steps have provided
    """
    engine = taskflow.engines.load(flow, store=store, engine='serial')
    engine.run()
    found: dict[str, typing.Any] = engine.storage.fetch_all()
    return found
