# SPDX-License-Identifier: Apache-2.0
"""Mocks of our own code have its spec: they refuse the calls that it would.

A mock that :func:`unittest.mock.patch` makes in place of a module, class or
function of ours gets it by itself, after :func:`install`. For others there
are :func:`unittest.mock.create_autospec`, :class:`Room`, :func:`port` and
:func:`node`.
"""

from collections.abc import Callable
import dataclasses
import functools
import inspect
import types
import typing
from unittest import mock

from cinder_localclone.core import node as nodes
from cinder_localclone.core.node import Node
from cinder_localclone.core import objects

#: Packages whose modules are ours.
OURS = ('cinder_localclone', 'lab', 'tests')


def _function(thing: typing.Any) -> typing.Any:
    """Return what an entry point runs; anything else as it is.

    privsep makes a partial of its own function, which takes all arguments.
    """
    return thing.args[0] if (
        isinstance(thing, functools.partial) and thing.args) else thing


def is_ours(thing: object) -> bool:
    """Return whether a module, class or function is of one of our modules."""
    name = (thing.__name__ if isinstance(thing, types.ModuleType)
            else getattr(thing, '__module__', None))
    return isinstance(name, str) and name.partition('.')[0] in OURS


@functools.cache
def _signature(function, is_method):
    found = inspect.signature(function)
    return found.replace(parameters=list(
        found.parameters.values())[1:]) if is_method else found


class Function(mock.Mock):
    """Mock of a function, or of a method, which is called without self.

    :param checked: its signature
    """

    def __init__(self, *, checked=None, children=mock.MagicMock, **words):
        super().__init__(**words)
        self.__dict__.update(_checked=checked, _children=children)

    def __call__(self, *args, **words):
        self.__dict__['_checked'].bind(*args, **words)
        return super().__call__(*args, **words)

    def _get_child_mock(self, /, **words):
        return self.__dict__['_children'](**words)


class Room(mock.NonCallableMagicMock):
    """Mock of a module, or of an object of a class.

    :param original: the module or class
    """

    def __init__(self, *, original=None, **words):
        self.__dict__['_original'] = original
        super().__init__(spec=original, **words)

    def _get_child_mock(self, /, **words):
        original = self.__dict__['_original']
        function = _function(inspect.getattr_static(
            original, words.get('name') or '', None))
        if not inspect.isfunction(function):
            return mock.MagicMock(**words)
        is_method = inspect.isclass(original)
        # Of what a module's functions return bool() is no call.
        return Function(
            checked=_signature(function, is_method),
            children=mock.MagicMock if is_method else mock.Mock, **words)


@functools.cache
def _hints() -> dict[str, typing.Any]:
    return typing.get_type_hints(Node)


def ports_of_node() -> list[str]:
    """Return the fields of a node that are rooms, by name."""
    return [name for name, kind in _hints().items()
            if getattr(kind, '_is_protocol', False)
            or inspect.isabstract(kind)]


def port(name: str, **attributes) -> Room:
    """Return the mock of a node's room.

    :param name: of the field of Node
    """
    if name == 'peers':
        return _calls()
    return Room(original=_hints()[name], **attributes)


def _calls():
    from tests.helpers import callers  # has all that acts
    return callers.Calls()


def _lock(volume_id: str) -> None:
    """Stand for the locks of a node."""


def _is_at(connector: objects.Connector, host: str) -> bool:
    """Stand for what tells where a connector belongs."""
    raise NotImplementedError


def _clear(lv_name: str, size_bytes: int) -> None:
    """Stand for what overwrites an LV."""


def node(**fields) -> Room:
    """Return the mock of a node, whose rooms have their ports' specs.

    :param fields: of the node, where they are not to be mocks
    """
    functions: dict[str, Callable] = {
        'lock': _lock, 'try_lock': _lock, 'is_at': _is_at, 'clear': _clear}
    made = Room(original=Node)
    made.host = 'a@l'
    for each in dataclasses.fields(Node):
        name = each.name
        if name in functions:
            made.attach_mock(Function(
                checked=_signature(functions[name], False)), name)
        elif name == 'peers':
            made.peers = _calls()
        elif name in ports_of_node():
            made.attach_mock(port(name), name)
        elif each.default is not dataclasses.MISSING:
            setattr(made, name, each.default)
    made.detached, made.asked = {}, {}
    made.listing = nodes.Listing(lambda: made.lvm.lvs())
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _specify(patcher):
    """Have a patcher make a mock with the spec of what it replaces."""
    if (patcher.new is not mock.DEFAULT or patcher.new_callable
            or not (patcher.autospec is patcher.spec is patcher.spec_set
                    is None)):
        return
    target = patcher.getter()
    original = _function(
        inspect.getattr_static(target, patcher.attribute, None))
    if not is_ours(original):
        return
    if isinstance(original, types.ModuleType):
        patcher.new_callable = functools.partial(Room, original=original)
    elif inspect.isfunction(original):
        is_method = not isinstance(target, types.ModuleType) and (
            inspect.isclass(target) or patcher.attribute not in vars(target))
        patcher.new_callable = functools.partial(
            Function, checked=_signature(original, is_method))
    elif inspect.isclass(original):
        patcher.new_callable = functools.partial(
            mock.create_autospec, original)


def install() -> None:
    """Have each mock that patches our code specified by what it replaces."""
    enter = mock._patch.__enter__

    @functools.wraps(enter)
    def specified(patcher):
        _specify(patcher)
        return enter(patcher)
    mock._patch.__enter__ = specified  # type: ignore[method-assign]
