# SPDX-License-Identifier: Apache-2.0
"""Run the steps of a move as a TaskFlow flow."""

import typing

import taskflow.engines
from taskflow.patterns import linear_flow
from taskflow import task

from cinder_localclone.core.node import Node


class Step(task.Task):
    """A step of a flow on this node.

    TaskFlow fills the arguments of ``execute`` by name: from the arguments of
    :func:`run`, and from the results of earlier steps.

    :param name: for a step that occurs twice in a flow
    """

    def __init__(self, node: Node, name: str | None = None):
        super().__init__(name)
        self._node = node


def run(flow: linear_flow.Flow, **store: typing.Any
        ) -> dict[str, typing.Any]:
    """Run a flow, and raise the original error of a failed step.

    :param store: arguments of the steps
    :returns: these arguments, and the results of the steps
    """
    engine = taskflow.engines.load(flow, store=store, engine='serial')
    engine.run()
    found: dict[str, typing.Any] = engine.storage.fetch_all()
    return found
