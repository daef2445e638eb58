# SPDX-License-Identifier: Apache-2.0
"""Mocks of our own code have its spec."""

import ast
import functools
import pathlib
from unittest import mock

import testtools

from cinder_localclone.storage import iscsi_initiator
from cinder_localclone.storage.privsep import block
from tests.helpers import specs

DIRECTORY = pathlib.Path(__file__).parents[1]
BARE = ('mock.Mock', 'mock.MagicMock')
#: Words that give a mock its spec, or what it passes calls on to.
SPECIFIED = {'spec', 'spec_set', 'wraps'}
#: What may be called like a room and be a bare mock, by module and name.
EXCEPTIONS = {
    ('test_front_end', 'keys'): 'os-brick\'s key manager',
    ('driver_case', 'node'): 'also answers what the node asks only of Lvm',
    ('test_faults_operations', 'node'): 'a node of the lab',
    ('test_kernels', 'node'): 'a node of the lab',
}


@functools.cache
def rooms():
    """Names of what a test must not have a bare mock of."""
    return {'node', *specs.ports_of_node(), *(
        path.stem for path in (
            DIRECTORY.parent / 'cinder_localclone/storage/privsep').glob(
                '[a-z]*.py'))}


def is_bare(value):
    return isinstance(value, ast.Call) and ast.unparse(
        value.func) in BARE and not SPECIFIED.intersection(
            word.arg for word in value.keywords)


def _pairs(target, value):
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each in zip(target.elts, value.elts, strict=False):
            yield from _pairs(*each)
    else:
        yield ast.unparse(target).rpartition('.')[2], value


def bare(tree):
    """Return the names of rooms that are assigned or given a bare mock."""
    found = []
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                found += _pairs(target, each.value)
        elif isinstance(each, ast.keyword):
            found.append((each.arg, each.value))
    return {name for name, value in found
            if name in rooms() and is_bare(value)}


class BareTest(testtools.TestCase):

    def test_no_room_is_a_bare_mock(self):
        self.assertEqual(set(EXCEPTIONS), {
            (path.stem, name) for path in DIRECTORY.rglob('*.py')
            for name in bare(ast.parse(path.read_text()))})

    def test_what_is_one(self):
        for line, expected in (
                ('node = mock.Mock(host=1)', {'node'}),
                ('a, self.crypt = 1, mock.MagicMock()', {'crypt'}),
                ('f(lvm=mock.Mock())', {'lvm'}),
                ('node = mock.Mock(spec=x)', set()),
                ('node = specs.node()', set()), ('x = mock.Mock()', set())):
            self.assertEqual(expected, bare(ast.parse(line)), line)


class SpaceTest(testtools.TestCase):

    def test_module_that_runs_as_root(self):
        made = specs.Room(original=block)
        self.assertRaises(TypeError, made.size)
        self.assertRaises(TypeError, made.size, 'path', odd=1)
        self.assertRaises(AttributeError, lambda: made.no_function)
        self.assertEqual([], made.mock_calls)
        bool(made.size('path'))
        self.assertEqual([mock.call.size('path')], made.mock_calls)

    def test_object(self):
        made = specs.Room(original=iscsi_initiator.Sessions)
        self.assertRaises(TypeError, made.attach)
        made.attach('move')
        made.attach.assert_called_once_with('move')


class NodeTest(testtools.TestCase):

    def test_rooms_of_a_node(self):
        node = specs.node(host='b@l')
        self.assertEqual('b@l', node.host)
        self.assertRaises(TypeError, node.lvm.remove_lv)
        self.assertRaises(AttributeError, lambda: node.lvm.no_method)
        self.assertRaises(AttributeError, lambda: node.no_field)
        with node.lock('v'):
            node.lvm.remove_lv('lv')
        self.assertEqual([mock.call.lock('v'),
                          mock.call.lvm.remove_lv('lv')],
                         [call for call in node.mock_calls
                          if '__' not in call[0]])


class Thing:
    """What a test may patch."""

    def act(self, what):
        """Nothing."""


class PatchTest(testtools.TestCase):

    def assert_checked(self, made, *arguments):
        made(*arguments)
        self.assertRaises(TypeError, made, *arguments, 'one more')

    def test_function_that_runs_as_root(self):
        with mock.patch.object(block, 'size') as made:
            self.assert_checked(made, 'path')

    def test_module(self):
        with mock.patch.object(iscsi_initiator, 'iscsiadm') as made:
            self.assertRaises(AttributeError, lambda: made.no_function)

    def test_class(self):
        with mock.patch('tests.lab.test_specs.Thing') as made:
            self.assertRaises(AttributeError, lambda: made().no_method)

    def test_method_of_a_class_and_of_an_object(self):
        for target in Thing, Thing():
            with mock.patch.object(target, 'act', return_value=1) as made:
                self.assert_checked(made, 'what')

    def test_function_that_an_object_has(self):
        thing = Thing()
        thing.given = _given
        with mock.patch.object(thing, 'given') as made:
            self.assert_checked(made, 'what')

    def test_what_others_wrote_is_left_alone(self):
        with mock.patch.object(pathlib.Path, 'unlink') as made:
            made('any', 'number')


def _given(what):
    """Nothing."""
