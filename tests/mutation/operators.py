# SPDX-License-Identifier: Apache-2.0
"""What is changed in a piece of code: few operators, but telling ones.

Each operator takes a :class:`Source` and a node of its tree and yields edits
of the text: (from, to, what stands there instead), in bytes. An operator that
is marked with ``@block`` takes a list of statements instead of a node.
"""

import ast
import itertools
import re

OPERATORS = []
BLOCK_OPERATORS = []

_SWAPPED = {'==': '!=', '!=': '==', '<': '<=', '<=': '<', '>': '>=',
            '>=': '>', 'is': 'is not', 'is not': 'is', 'in': 'not in',
            'not in': 'in'}
_SYMBOLS = {ast.Eq: '==', ast.NotEq: '!=', ast.Lt: '<', ast.LtE: '<=',
            ast.Gt: '>', ast.GtE: '>=', ast.Is: 'is', ast.IsNot: 'is not',
            ast.In: 'in', ast.NotIn: 'not in'}
#: Of these, the swapped comparison is the negated one.
_OPPOSITES = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
#: Methods that take any number of things to do, or to ask for.
_STEPS = ('add', 'filter')
_SENTENCE = re.compile(r'\w[,.;:)]? [("]?[\w%]')


class Source:
    """The text of a module, its tree, and where a node of it stands.

    :param words: whether texts that read like sentences are mutated, too:
        they are no messages here but words of commands
    """

    def __init__(self, text, words=False):
        self.raw = text.encode()
        self.tree = ast.parse(text)
        self.words = words
        self._lines = [0, *itertools.accumulate(
            len(line) for line in self.raw.splitlines(keepends=True))]

    def span(self, node):
        return (self._lines[node.lineno - 1] + node.col_offset,
                self._lines[node.end_lineno - 1] + node.end_col_offset)

    def text(self, node):
        begin, end = self.span(node)
        return self.raw[begin:end].decode()

    def between(self, first, second):
        return self.raw[self.span(first)[1]:self.span(second)[0]].decode()

    def edited(self, begin, end, replacement):
        """The text after an edit."""
        return (self.raw[:begin] + replacement.encode()
                + self.raw[end:]).decode()


def operator(*kinds):
    """A function is an operator for nodes of these kinds."""
    def mark(function):
        OPERATORS.append((function.__name__.replace('_', '-'), kinds,
                          function))
        return function
    return mark


def block(function):
    """A function is an operator for lists of statements."""
    BLOCK_OPERATORS.append((function.__name__.replace('_', '-'), function))
    return function


def is_log(node):
    """A statement that logs something."""
    return (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and isinstance(node.value.func.value, ast.Name)
            and node.value.func.value.id in ('LOG', 'events'))


# -- statements


@operator(ast.Expr)
def drop_call(source, node):
    if isinstance(node.value, ast.Call):
        yield (*source.span(node), 'pass')


@operator(ast.Assign, ast.AugAssign, ast.Delete)
def drop_store(source, node):
    """What is written into something, or taken out of it."""
    targets = getattr(node, 'targets', None) or [node.target]
    if all(isinstance(each, (ast.Attribute, ast.Subscript))
           for each in targets):
        yield (*source.span(node), 'pass')


@operator(ast.With)
def drop_with(source, node):
    """A lock that is not taken, an exception that is not suppressed."""
    for item in node.items:
        if item.optional_vars:
            continue
        rest = [source.text(each.context_expr) + (
            ' as ' + source.text(each.optional_vars)
            if each.optional_vars else '')
            for each in node.items if each is not item]
        last = node.items[-1]
        begin, end = source.span(node)[0], source.span(
            last.optional_vars or last.context_expr)[1]
        end = source.raw.index(b':', end)  # it may be in parentheses
        yield begin, end, 'with ' + ', '.join(rest) if rest else 'if True'


@operator(ast.Raise)
def drop_raise(source, node):
    yield (*source.span(node), 'pass')


@operator(ast.ExceptHandler)
def drop_handler(source, node):
    """What was handled is raised."""
    first = node.body[0]
    if not (isinstance(first, ast.Raise) and first.exc is None):
        yield (source.span(first)[0], source.span(node.body[-1])[1], 'raise')


@operator(ast.Return)
def change_return(source, node):
    value = node.value
    if value is None or isinstance(value, ast.Constant):
        return
    if _is_boolean(value):
        yield from _negated(source, value)
    else:
        yield (*source.span(value), 'None')


@block
def reorder(source, statements):
    """An effect and what is next to it, the other way round."""
    for first, second in zip(statements, statements[1:]):
        if not (_calls(first) and _calls(second)
                and (_acts(first) or _acts(second))):
            continue
        if isinstance(first, (ast.Return, ast.Raise)) or isinstance(
                second, ast.Raise):
            continue
        if (_names(first, ast.Store) & _names(second)
                or _names(second, ast.Store) & _names(first)):
            continue
        begin, end = source.span(first)[0], source.span(second)[1]
        if not isinstance(second, ast.Return):
            yield begin, end, (source.text(second) + source.between(
                first, second) + source.text(first))
        elif isinstance(first, ast.Expr):
            indent = '\n' + ' ' * first.col_offset
            yield begin, end, indent.join((
                'early = ' + source.text(second.value), source.text(first),
                'return early'))


def _calls(statement):
    """Whether it calls anything, logging aside."""
    return any(isinstance(each, ast.Call) for each in _unlogged(statement))


def _acts(statement):
    """Whether it calls anything for what that does."""
    return any(isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
               for each in _unlogged(statement))


def _unlogged(node):
    if not is_log(node):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _unlogged(child)


def _names(node, context=ast.expr_context):
    return {each.id for each in ast.walk(node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, context)}


# -- conditions


@operator(ast.If, ast.While, ast.IfExp)
def negate(source, node):
    yield from _negated(source, node.test)


@operator(ast.comprehension)
def negate_filter(source, node):
    for test in node.ifs:
        yield from _negated(source, test)


def _negated(source, test):
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return  # drop-not does it
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(
            test.ops[0], _OPPOSITES):
        return  # compare does it
    yield (*source.span(test), 'not (%s)' % source.text(test))


def _is_boolean(node):
    return isinstance(node, (ast.Compare, ast.BoolOp)) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        and node.func.id in ('any', 'all', 'bool', 'isinstance'))


@operator(ast.UnaryOp)
def drop_not(source, node):
    if isinstance(node.op, ast.Not):
        yield (*source.span(node), '(%s)' % source.text(node.operand))


@operator(ast.Compare)
def compare(source, node):
    """Equal or not, within or up to the limit."""
    operands = [node.left, *node.comparators]
    for first, sign, second in zip(operands, node.ops, operands[1:]):
        symbol = _SYMBOLS[type(sign)]
        begin, end = source.span(first)[1], source.span(second)[0]
        gap = source.between(first, second)
        yield begin, end, re.sub(
            r'\b%s\b' % symbol if symbol.isalpha() else re.escape(symbol),
            _SWAPPED[symbol], gap, count=1)


@operator(ast.BoolOp)
def and_or(source, node):
    old, new = ('and', 'or') if isinstance(node.op, ast.And) else (
        'or', 'and')
    text = ''
    for first, second in zip(node.values, node.values[1:]):
        text += source.between(first, second).replace(old, new)
        text += source.text(second)
    yield (source.span(node.values[0])[1], source.span(node.values[-1])[1],
           text)


@operator(ast.BoolOp)
def drop_condition(source, node):
    word = 'and' if isinstance(node.op, ast.And) else 'or'
    yield from _without_each(
        source, node, [source.span(each) for each in node.values], word,
        lambda kept: '(%s)' % (' %s ' % word).join(
            '(%s)' % each for each in kept))


# -- values


@operator(ast.Constant)
def constant(source, node):
    """A truth that is a lie, a number that is one off, another word.

    Not the fractions (of a second) for which something is waited for.
    """
    value = node.value
    if isinstance(value, bool):
        yield (*source.span(node), repr(not value))
    elif isinstance(value, int):
        yield (*source.span(node), repr(value + 1))
    elif isinstance(value, str) and value:
        if source.words or not _SENTENCE.search(value):
            yield (*source.span(node), repr('XX' + value))


# -- arguments and elements


def _without_each(source, node, spans, separator, rebuild, only=None):
    """What is left of a list without one of its elements, each in turn.

    It is cut out of the text. Where more than the separator stands between
    two, or the separator must stay, the list is made anew.

    :param spans: of the elements
    :param rebuild: makes ``node`` from the texts that stay
    :param only: which are dropped; default: all
    """
    for n, (begin, end) in enumerate(spans):
        if only is not None and (begin, end) not in only:
            continue
        gap = separator
        if n + 1 < len(spans):
            gap, end = source.raw[end:spans[n + 1][0]].decode(), (
                spans[n + 1][0])
        elif n:
            gap, begin = source.raw[spans[n - 1][1]:begin].decode(), (
                spans[n - 1][1])
        if gap.strip() == separator:
            yield begin, end, ''
        else:
            yield (*source.span(node), rebuild([
                source.raw[slice(*span)].decode()
                for span in spans[:n] + spans[n + 1:]]))


def _without_arguments(source, call, dropped):
    yield from _without_each(
        source, call,
        sorted(source.span(each) for each in (*call.args, *call.keywords)),
        ',', lambda kept: '%s(%s)' % (
            source.text(call.func), ', '.join(kept)),
        [source.span(each) for each in dropped])


@operator(ast.Call)
def drop_keyword(source, node):
    yield from _without_arguments(
        source, node, [each for each in node.keywords if each.arg])


@operator(ast.Call)
def drop_step(source, node):
    if (isinstance(node.func, ast.Attribute) and node.func.attr in _STEPS
            and len(node.args) > 1):
        yield from _without_arguments(source, node, node.args)


@operator(ast.Call)
def swap_steps(source, node):
    if isinstance(node.func, ast.Attribute) and node.func.attr == 'add':
        for first, second in zip(node.args, node.args[1:]):
            yield (source.span(first)[0], source.span(second)[1],
                   source.text(second) + source.between(first, second)
                   + source.text(first))


@operator(ast.Call)
def drop_link(source, node):
    """``a(...).b(...)`` is ``a(...)``."""
    if isinstance(node.func, ast.Attribute) and isinstance(
            node.func.value, ast.Call):
        yield (*source.span(node), source.text(node.func.value))


@operator(ast.Assign)
def drop_refinement(source, node):
    """``a = a.b(...)``, as in a query that is not for update any more."""
    call = node.value
    if (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and [call.func.value.id] == [
                getattr(each, 'id', '') for each in node.targets]):
        yield (*source.span(node), 'pass')


@operator(ast.Tuple, ast.List, ast.Set)
def drop_element(source, node):
    if len(node.elts) < 2 or isinstance(
            getattr(node, 'ctx', None), ast.Store):
        return
    form = {ast.Tuple: '(%s,)', ast.List: '[%s]', ast.Set: '{%s}'}[type(node)]
    # Of two in a tuple, the one that stays needs its comma.
    cut = len(node.elts) > 2 or not isinstance(node, ast.Tuple)
    yield from _without_each(
        source, node, [source.span(each) for each in node.elts],
        ',' if cut else None, lambda kept: form % ', '.join(kept))


@operator(ast.Dict)
def drop_pair(source, node):
    yield from _without_each(
        source, node,
        [(source.span(key)[0], source.span(value)[1])
         for key, value in zip(node.keys, node.values) if key], ',',
        lambda kept: '{%s}' % ', '.join(kept))
