# SPDX-License-Identifier: Apache-2.0
"""Methods that nodes call on each other, each declared once.

A function for other nodes to call has the decorator :func:`method`::

    @rpc.method('revert', rpc.HOME, times=2)
    def revert(reconciler, volume_id, snapshot_id): ...

The decorator registers the function and returns it unchanged: a plain call
acts on this node. A call on another node names the same function, so "go to
definition" leads to the code that acts:

- ``rpc.call_at(host, revert, reconciler, ...)`` calls it on a node: directly
  on this node, else over the message bus.
- ``rpc.call_at_home(revert, reconciler, volume, ...)``: on a volume's home.
- ``rpc.cast(host, reconcile, node, ...)`` sends the call and does not wait.

The first argument is the *subject*: the node, or an object with the node. It
does not cross the bus. The peer passes its own subject instead: the attribute
of its ``service.assembly.Service`` with the name of the parameter (``node``,
``reconciler``), or of the class of a bound method (``Connections.connect``:
``connections``). The other arguments, and the result, are plain JSON values;
others raise TypeError before anything is sent.

Packages call downwards only. Two functions are called from a package below
their own. These are declared in :mod:`.interfaces.peers` by :func:`declared`,
and their implementations have the decorator :func:`implements`.

:data:`METHODS` has all methods. ``service.rpc`` sends the calls,
``service.endpoint`` answers them, the operator's command calls methods by
name, and the contributor's page has a table of them. Nodes call each other in
the same version only. So each change of a method or its arguments increments
``service.rpc.VERSION``, and needs no compatibility with older nodes.

Errors cross the bus as their class and their text. An error of
:mod:`.exceptions` or :mod:`.encryption_exceptions` is raised at the caller in
its own class, with its text. So the member of a project reads the same message
as without the bus. Any other error, also of Python or Cinder, is raised as
LocalCloneError with its text. Unless the text has the name of the peer,
"On <host>:" is put before it.
"""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import dataclasses
import inspect
import typing

from cinder_localclone.core import exceptions
from cinder_localclone.core.volume import Volume

#: The time limit of a prompt method in seconds. Such a method takes only a
#: moment on a running service, so a peer silent for longer is down.
PROMPT = 8

#: The part of the node where a method acts. An error about a silent node
#: depends on it; see ``service.rpc``.
HOME = 'the home of the volume'
SNAPSHOT = 'the node with the snapshot'
SOURCE = 'the source of the move'
DESTINATION = 'the destination of the move'
REMOTE = 'the node with the remote attachment'
ANY = 'any node'

_Subject = typing.TypeVar('_Subject')
_Arguments = typing.ParamSpec('_Arguments')
_Result = typing.TypeVar('_Result')
_Function = typing.TypeVar('_Function', bound=Callable[..., typing.Any])


@dataclasses.dataclass(frozen=True)
class Method:
    """A function that other nodes can call.

    :param name: its name on the message bus
    :param where: the part of the node where it acts, such as :data:`HOME`: it
        chooses the error for a silent node, and is in the contributor's page
    :param function: the implementation; None until it is imported
    :param origin: the dotted name of the implementation, or of the declaration
        until then
    :param signature: of the arguments that cross the bus
    :param subject: the name of its first argument on the peer
    :param prompt: whether its time limit is :data:`PROMPT`
    :param times: otherwise its time limit as a multiple of
        ``localclone_peer_timeout``
    :param casts: whether it can also be sent without waiting for its end
    :param expected: errors that the peer does not log as its own failure
    :param gives_way: whether copies on the peer slow down or stop meanwhile,
        because the owner of the volume waits for the method
    :param on_peer: arguments with a fixed value in each call by a peer. They
        do not cross the bus; a plain call on this node passes them as usual
    """

    name: str
    where: str
    function: Callable[..., typing.Any] | None
    origin: str
    signature: inspect.Signature
    subject: str
    prompt: bool = False
    times: int = 1
    casts: bool = False
    expected: tuple[type[Exception], ...] = ()
    gives_way: bool = False
    on_peer: Mapping[str, typing.Any] = dataclasses.field(default_factory=dict)

    def seconds(self, work: float) -> float:
        """Return its time limit in seconds.

        :param work: ``localclone_peer_timeout``
        """
        return PROMPT if self.prompt else self.times * work

    def bind(self, *args: typing.Any, **kwargs: typing.Any
             ) -> dict[str, typing.Any]:
        """Check the arguments of a call; return them by name for the bus.

        :raises TypeError: if they do not fit its signature, or are not plain
            JSON
        """
        arguments = self.signature.bind(*args, **kwargs).arguments
        for name, value in arguments.items():
            check_plain(value, 'Argument %s of %s' % (name, self.name))
        return arguments

    def answer(self, service: typing.Any, arguments: Mapping[
            str, typing.Any]) -> typing.Any:
        """Run it on this node for a peer, and return its result.

        :param service: of this node, with the subjects as attributes
        :param arguments: the arguments from the bus
        :raises TypeError: if the result is not plain JSON
        :raises NotImplementedError: if the implementation is not imported
        """
        if self.function is None:
            raise NotImplementedError(self.name)
        subject = (service if self.subject == 'service'
                   else getattr(service, self.subject))
        with (service.reconciler.copying.waker.give_way()
              if self.gives_way else contextlib.nullcontext()):
            result = self.function(subject, **arguments, **self.on_peer)
        check_plain(result, 'The answer of ' + self.name)
        return result


#: Methods by their name on the bus, and names by function: of the declaration
#: and of the implementation.
METHODS: dict[str, Method] = {}
_NAME_OF: dict[Callable[..., typing.Any], str] = {}


class Calls(typing.Protocol):
    """Calls of methods on other nodes."""

    def call(self, host: str, method: Method,
             arguments: Mapping[str, typing.Any]) -> typing.Any:
        """Run a method on another node, and wait for its result.

        :param host: service host, without pool
        :raises PeerUnreachable: if the node does not answer in time; by the
            method's ``where`` a subclass
        :raises OtherVersion: if the node runs another version of the driver
        :raises LocalCloneError: as the method
        """

    def cast(self, host: str, method: Method,
             arguments: Mapping[str, typing.Any]) -> None:
        """Send a method, and do not wait; the call may be lost.

        Raises nothing.
        """


def method(name: str, where: str = ANY, **how: typing.Any
           ) -> Callable[[_Function], _Function]:
    """Declare a function for other nodes to call.

    :param name: its name on the message bus
    :param where: the node where it acts
    :param how: see :class:`Method`
    :raises ValueError: if another function has the name
    """
    def declare(function: _Function) -> _Function:
        _register(name, where, function, how)
        _implement(METHODS[name], function)
        return function
    return declare


def declared(name: str, where: str = ANY, **how: typing.Any
             ) -> Callable[[_Function], _Function]:
    """Declare a function implemented in a higher package.

    The decorated function is only the declaration; its implementation has the
    decorator :func:`implements`. The parameters are those of :func:`method`.
    """
    def declare(function: _Function) -> _Function:
        _register(name, where, function, how)
        return function
    return declare


def implements(declaration: Callable[..., typing.Any]
               ) -> Callable[[_Function], _Function]:
    """Register the implementation of a function declared by :func:`declared`.

    :param declaration: the declared function
    :raises TypeError: if the implementation has other parameters
    """
    def implement(function: _Function) -> _Function:
        found = method_of(declaration)
        if [*_other_parameters(function)] != [*found.signature.parameters]:
            raise TypeError('%s has other parameters than its declaration'
                            % found.name)
        _implement(found, function)
        return function
    return implement


def _register(name: str, where: str, function: Callable[..., typing.Any],
              how: Mapping[str, typing.Any]) -> None:
    if name in METHODS and METHODS[name].origin != _origin(function):
        raise ValueError('There are two methods called ' + name)
    METHODS[name] = Method(
        name, where, None, _origin(function), inspect.Signature([
            each for each in _other_parameters(function).values()
            if each.name not in how.get('on_peer', ())]), '', **how)
    _NAME_OF[function] = name


def _implement(found: Method, function: Callable[..., typing.Any]) -> None:
    METHODS[found.name] = dataclasses.replace(
        found, function=function, origin=_origin(function),
        subject=_subject(function))
    _NAME_OF[function] = found.name


def _origin(function: Callable[..., typing.Any]) -> str:
    return '%s.%s' % (function.__module__, function.__qualname__)


def _other_parameters(function: Callable[..., typing.Any]
                      ) -> dict[str, inspect.Parameter]:
    """Return all parameters of a function except its subject, the first."""
    found = dict(inspect.signature(function).parameters)
    del found[next(iter(found))]
    return found


def _subject(function: Callable[..., typing.Any]) -> str:
    """Return the attribute of the peer's service with a function's subject."""
    first = next(iter(inspect.signature(function).parameters))
    if first != 'self':
        return first
    return function.__qualname__.rpartition('.')[0].lower()


def method_of(function: Callable[..., typing.Any]) -> Method:
    """Return the :class:`Method` of a declared function or of its declaration.
    """
    return METHODS[_NAME_OF[function]]


def call_at(host: str, function: Callable[
        typing.Concatenate[_Subject, _Arguments], _Result],
        subject: _Subject, *args: _Arguments.args,
        **kwargs: _Arguments.kwargs) -> _Result:
    """Run a function on a node, and return its result.

    On this node the function is called directly, without the bus.

    :param host: service host of the node, without pool
    :param function: declared by :func:`method` or :func:`declared`
    :param subject: its first argument on this node
    :raises PeerUnreachable: if the node does not answer in time
    :raises LocalCloneError: as the function
    """
    node = _node(subject)
    if host == node.host:
        return function(subject, *args, **kwargs)
    found = method_of(function)
    result: _Result = node.peers.call(host, found, found.bind(
        *args, **kwargs))
    return result


def call_at_home(function: Callable[
        typing.Concatenate[_Subject, str, _Arguments], _Result],
        subject: _Subject, volume: Volume, *args: _Arguments.args,
        **kwargs: _Arguments.kwargs) -> _Result:
    """Run a function on the home of a volume, and return its result.

    The function raises StaleMove on a node other than the home. If the
    volume's row names another home by then, this home is called, once.

    :param function: its second argument is the volume's id
    :param volume: its row, as the caller read it
    :raises StaleMove: by the function: the row names the same home as before,
        or is gone, or the volume has moved again
    :raises LocalCloneError: as :func:`call_at`
    """
    home = volume.home
    try:
        return call_at(home, function, subject, volume.id, *args, **kwargs)
    except exceptions.StaleMove:
        found = _node(subject).volumes.volume(volume.id)
        moved = found.home if found else home
        if moved == home:
            raise
    return call_at(moved, function, subject, volume.id, *args, **kwargs)


def cast(host: str, function: Callable[
        typing.Concatenate[_Subject, _Arguments], object],
        subject: _Subject, *args: _Arguments.args,
        **kwargs: _Arguments.kwargs) -> None:
    """Call a function on a node without waiting; the call may be lost.

    Even a call on this node goes over the bus.

    :raises TypeError: if the function is declared without ``casts``
    """
    found = method_of(function)
    if not found.casts:
        raise TypeError('%s can\'t be cast' % found.name)
    _node(subject).peers.cast(host, found, found.bind(*args, **kwargs))


def _node(subject: typing.Any) -> typing.Any:
    """Return the node of a subject."""
    return getattr(subject, 'node', subject)


def check_plain(value: object, what: str) -> None:
    """Check that a value consists of plain JSON values.

    The bus transports these unchanged, except that tuples become lists.

    :param what: the value's name in the error
    :raises TypeError: if it is not made of JSON's own types
    """
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise TypeError('%s is not plain JSON: key %r' % (what, key))
            check_plain(each, what)
    elif isinstance(value, list | tuple):
        for each in value:
            check_plain(each, what)
    elif not (value is None or isinstance(value, str | int | float)):
        # Without the value: it may be a secret.
        raise TypeError('%s is not plain JSON: %s' % (
            what, type(value).__name__))
