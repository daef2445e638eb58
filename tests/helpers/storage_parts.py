# SPDX-License-Identifier: Apache-2.0
"""The objects of a node's storage, by the names of their methods.

For a test that is given such a name, or that wants the order of calls to
several of the objects.
"""

import typing
from unittest import mock

from cinder_localclone.core.interfaces import storage
from tests import world as worlds

PARTS = {'lvm': (storage.Lvm, worlds.SimLvm),
         'handles': (storage.Handles, worlds.SimHandles),
         'clones': (storage.Clones, worlds.SimClones)}


def part(method: str) -> str:
    """Return the field of a node whose object has a method."""
    name, = (name for name, (kind, _simulated) in PARTS.items()
             if method in vars(kind))
    return name


def of(node: typing.Any, method: str) -> typing.Any:
    """Return the object of a node that has a method."""
    return getattr(node, part(method))


def simulated(method: str) -> type:
    """Return the class of the simulated world that has a method."""
    return PARTS[part(method)][1]


def calls(parent: mock.NonCallableMock) -> list[typing.Any]:
    """Return the calls to these objects of a mock, in their order.

    :param parent: a node, or another mock that they are attached to
    """
    split = [(*name.partition('.'), args, words)
             for name, args, words in parent.mock_calls]
    return [getattr(mock.call, name)(*args, **words)
            for owner, _dot, name, args, words in split
            if owner in PARTS and name.isidentifier()]
