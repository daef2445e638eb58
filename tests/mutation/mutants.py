# SPDX-License-Identifier: Apache-2.0
"""All mutants of a module.

The id of a mutant has the file, the function, the operator and a digest of
the lines it changes; the ones of equal lines are numbered. So it stays the
same whatever is edited elsewhere, and is another once its lines are.

Not mutated: what logs, what is raised (but that it is), docstrings and
annotations; and what happens only once, when a module is imported: decorators,
defaults of arguments, classes and modules but for functions and CONSTANTS.
"""

import ast
import collections
import dataclasses
import difflib
import hashlib
import re

from tests.mutation import operators

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPPED = ('annotation', 'returns', 'decorator_list', 'args', 'exc', 'cause')
_CONSTANT = re.compile(r'_?[A-Z][A-Z0-9_]*$')
#: A constant is made again if that takes no other calls than these.
_PURE = ('frozenset', 'dict', 'tuple', 'set', 'MappingProxyType', 'compile')


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One edit of a module.

    :param path: of the module, relative to the package
    :param where: the qualified name of the function; or of the constant
    :param root: the outermost function, whose code is exchanged, as
        (qualified name, first line, last line); None for a constant
    :param lines: first and last line of the statement, or of its head
    """

    id: str
    path: str
    where: str
    operator: str
    root: tuple[str, int, int] | None
    lines: tuple[int, int]
    source: operators.Source = dataclasses.field(repr=False)
    edit: tuple[int, int, str]

    @property
    def text(self):
        """The module with the edit."""
        return self.source.edited(*self.edit)

    @property
    def diff(self):
        """The lines that differ, as in a unified diff without context."""
        return _diff(self.source, self.edit)

    @property
    def line(self):
        """The first line that differs."""
        return self.source.raw[:self.edit[0]].count(b'\n') + 1


def _diff(source, edit):
    begin, end, replacement = edit
    raw = source.raw
    first = raw.rfind(b'\n', 0, begin) + 1
    last = raw.find(b'\n', end)
    last = len(raw) if last < 0 else last
    before = raw[first:last].decode()
    after = (raw[first:begin] + replacement.encode() + raw[end:last]).decode()
    return list(difflib.unified_diff(
        before.splitlines(), after.splitlines(), n=0, lineterm=''))[3:]


def mutants(path, text, words=False):
    """All mutants of a module, from its first line to its last.

    :param path: what their ids begin with
    :param words: as in :class:`operators.Source`
    """
    source = operators.Source(text, words)
    seen = collections.Counter()
    for name, operator, root, lines, edit in _Walk(source).module():
        digest = hashlib.sha256('\n'.join(
            line[0] + line[1:].strip() for line in _diff(source, edit)
        ).encode()).hexdigest()[:6]
        identity = '%s:%s:%s:%s' % (path, name, operator, digest)
        seen[identity] += 1
        if seen[identity] > 1:
            identity += '.%d' % seen[identity]
        yield Mutant(identity, path, name, operator, root, lines, source,
                     edit)


class _Walk:
    """Finds edits: (name, operator, root, lines, edit)."""

    def __init__(self, source):
        self.source = source
        self._decorators = {
            each.id for node in ast.walk(source.tree)
            for each in getattr(node, 'decorator_list', ())
            if isinstance(each, ast.Name)}

    def module(self):
        yield from self._definitions(self.source.tree.body, '')

    def _definitions(self, statements, prefix):
        for node in statements:
            if isinstance(node, ast.ClassDef):
                yield from self._definitions(
                    node.body, '%s%s.' % (prefix, node.name))
            elif isinstance(node, _FUNCTIONS):
                first = min(each.lineno for each in (
                    node, *node.decorator_list))
                root = (prefix + node.name, first, node.end_lineno)
                yield from self._function(node, root[0], root)
            elif not prefix and targets(node) and pure(node.value):
                names = targets(node)
                each = isinstance(node.value, ast.Tuple) and len(names) > 1
                for value in node.value.elts if each else [node.value]:
                    yield from self._node(value, ','.join(names), None,
                                          (node.lineno, node.end_lineno))

    def _function(self, node, name, root):
        body = node.body
        if node.name in self._decorators:  # its own body is an import's
            body = [each for each in body if isinstance(each, _FUNCTIONS)]
        elif ast.get_docstring(node) is not None:
            body = body[1:]
        yield from self._block(body, name, root)

    def _block(self, statements, name, root):
        for operator, function in operators.BLOCK_OPERATORS:
            for edit in function(self.source, statements):
                line = self.source.raw[:edit[0]].count(b'\n') + 1
                yield name, operator, root, (line, line), edit
        for node in statements:
            if operators.is_log(node):
                continue
            if isinstance(node, _FUNCTIONS):
                yield from self._function(
                    node, '%s.%s' % (name, node.name), root)
            else:
                yield from self._node(node, name, root, None)

    def _node(self, node, name, root, lines):
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            lines = (node.lineno, head_end(node))
        for operator, kinds, function in operators.OPERATORS:
            if isinstance(node, kinds):
                for edit in function(self.source, node):
                    yield name, operator, root, lines, edit
        if isinstance(node, ast.JoinedStr):
            return
        for field, value in ast.iter_fields(node):
            if field in _SKIPPED and not isinstance(node, ast.Call):
                continue
            if isinstance(value, list) and value and isinstance(
                    value[0], ast.stmt):
                yield from self._block(value, name, root)
            else:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not is_type(
                            node, child):
                        yield from self._node(child, name, root, lines)


def is_type(node, child):
    """Whether a part of an expression only says which type it has."""
    return (isinstance(node, ast.Call) and child in node.args[:1]
            and getattr(node.func, 'attr', '') == 'cast')


def head_end(node):
    """The last line of a statement; of one with a body, of its head."""
    body = getattr(node, 'body', None)
    if body:
        return max(node.lineno, body[0].lineno - 1)
    return node.end_lineno


def targets(node):
    """The names of the constants that a statement of a module sets."""
    found = []
    if isinstance(node, ast.Assign):
        found = [each for target in node.targets for each in getattr(
            target, 'elts', [target])]
    elif isinstance(node, ast.AnnAssign) and node.value:
        found = [node.target]
    names = [getattr(each, 'id', '') for each in found]
    return names if all(map(_CONSTANT.match, names)) else []


def pure(value):
    """Whether a value can be made again without doing anything else."""
    return all(
        getattr(call.func, 'attr', getattr(call.func, 'id', '')) in _PURE
        for call in ast.walk(value) if isinstance(call, ast.Call))


def references(texts):
    """Where functions name a constant.

    :param texts: of modules, by path
    :returns: by name: list of (path, first line, last line)
    """
    found = collections.defaultdict(list)
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.stmt) and not isinstance(
                    node, (*_FUNCTIONS, ast.ClassDef)):
                for name in _named(node):
                    found[name].append((path, node.lineno, head_end(node)))
    return found


def _named(statement):
    names = set()
    todo = [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        todo += [child for child in ast.iter_child_nodes(node)
                 if not isinstance(child, (ast.stmt, ast.ExceptHandler))]
    return {name for name in names if _CONSTANT.match(name)}
