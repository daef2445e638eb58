# SPDX-License-Identifier: Apache-2.0
"""LVM tags: one table has all that the driver sets or reads."""

import ast
import pathlib
import re
import sys
import typing

import testtools

from cinder_localclone.core import header_notes
from cinder_localclone.core import lvm_tags
from cinder_localclone.core import names

ROOT = pathlib.Path(lvm_tags.__file__).parents[1]
sys.path.insert(0, str(ROOT.parent / 'doc/source/_ext'))
import lvm_tags_table  # noqa: E402


def modules():
    return {path: path.read_text() for path in sorted(ROOT.rglob('*.py'))
            if path.name not in ('lvm_tags.py', 'names.py')}


class TableTest(testtools.TestCase):

    def test_no_other_module_spells_a_tag(self):
        self.assertEqual([], [
            '%s: %s' % (path.relative_to(ROOT), node.value)
            for path, text in modules().items()
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            and node.value.startswith(lvm_tags.PREFIX)])

    def test_mypy_knows_each_fact(self):
        """What is read by another name is an error of types."""
        self.assertEqual(set(lvm_tags.FACTS),
                         set(typing.get_args(lvm_tags.Fact)))
        self.assertEqual(
            dict[lvm_tags.Fact, str], typing.get_type_hints(
                names.facts)['return'])

    def test_no_other_fact_can_be_set(self):
        self.assertRaises(KeyError, names.tags, volume='v', whatever=1)
        self.assertRaises(KeyError, names.with_fact, [], 'whatever')

    def test_no_row_is_of_nothing(self):
        everything = '\n'.join(modules().values())
        own = pathlib.Path(names.__file__).read_text()
        for each in lvm_tags.TABLE:
            constant, = (name for name, value in vars(lvm_tags).items()
                         if value is each)
            used = (r'names\.%s\b' % constant, r'lvm_tags\.%s\b' % constant,
                    r"'%s'" % each.name, r'\b%s=' % each.name)
            self.assertTrue(any(re.search(each, everything)
                                for each in used)
                            or re.search(r'\btags\((%s=|\*\*\{%s:)' % (
                                each.name, constant), own),
                            each.name)

    def test_modules_that_it_names_deal_with_the_tag(self):
        for each in lvm_tags.TABLE:
            constant, = (name for name, value in vars(lvm_tags).items()
                         if value is each)
            self.assertTrue(each.set_by, each.name)
            for module in {*each.set_by, *each.cleared_by} - {
                    lvm_tags.OPERATOR}:
                text = (ROOT / (module.replace('.', '/') + '.py')).read_text()
                self.assertIn(constant.lower(), text.lower(), module)

    def test_names_are_told_apart(self):
        texts = [each.text for each in lvm_tags.TABLE]
        self.assertEqual(len(texts), len(set(texts)))
        facts = [each.with_value('') for each in lvm_tags.FACTS.values()]
        for each in lvm_tags.TABLE:
            tag = each.with_value('x') if each.value else each.text
            self.assertEqual(
                [each.with_value('')] if each.name in lvm_tags.FACTS else [],
                [fact for fact in facts if tag.startswith(fact)])

    def test_facts_are_read_back(self):
        found = {name: 'of-' + name for name in lvm_tags.FACTS}
        self.assertEqual(found, names.facts(names.tags(**found)))
        self.assertEqual({}, names.facts(
            ['localclone.volume', 'localclone.other=1', 'volume=1']))
        for name in found:
            self.assertEqual({lvm_tags.FACTS[name].with_value('of-' + name)},
                             names.with_fact(names.tags(**found), name))

    def test_tags_of_a_group(self):
        tag = header_notes.remote_tag('v', 'luks', 'key')
        self.assertTrue(tag.startswith(lvm_tags.REMOTE.text), tag)
        tag, = header_notes.directory_tags('backend', ['/a'])
        self.assertTrue(tag.startswith(lvm_tags.KEEPS.text), tag)

    def test_page_has_each(self):
        page = '\n'.join(lvm_tags_table.rst())
        for each in lvm_tags.TABLE:
            self.assertIn('``%s``' % each.text, page)
            self.assertIn(each.meaning, page)
