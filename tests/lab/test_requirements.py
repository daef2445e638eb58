# SPDX-License-Identifier: Apache-2.0
"""What the package imports is what its requirements name."""

import ast
import pathlib
import re
import sys

import testtools

from cinder_localclone.cmd.doctor import packages

ROOT = pathlib.Path(__file__).parents[2]


class RequirementsTest(testtools.TestCase):

    def imported(self):
        """Top-level names, those of imports within functions too."""
        for path in (ROOT / 'cinder_localclone').rglob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from (each.name for each in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield node.module

    def test_they_are_the_same(self):
        imported = {name.partition('.')[0] for name in self.imported()}
        required = {re.sub('[-.]', '_', name) for name in re.findall(
            r'^([\w.-]+)>=', (ROOT / 'requirements.txt').read_text(),
            re.MULTILINE)}
        self.assertEqual(
            required,
            imported - sys.stdlib_module_names - {
                'cinder_localclone',
                # What the filter loads runs where Nova is, which brings both.
                'nova', 'cinderclient'})


class PackagesTest(testtools.TestCase):
    """bindep, the installation page and the doctor name the same packages."""

    #: Each node has it.
    ESSENTIAL = {'coreutils'}
    #: Of the page about the link only.
    OF_LINK = 'swanctl'

    def named(self, how):
        return {others.get(how, debian) for command, (debian, others) in
                packages.PACKAGES.items() if command != self.OF_LINK
                } - self.ESSENTIAL

    def bindep(self, *platforms):
        """What bindep.txt has for platforms, without a profile."""
        found = set()
        for line in (ROOT / 'bindep.txt').read_text().splitlines():
            name, _, selectors = line.partition(' [')
            words = selectors.rstrip(']').split()
            wanted = {each[9:] for each in words
                      if each.startswith('platform:')}
            refused = {each[10:] for each in words
                       if each.startswith('!platform:')}
            if not (wanted and words) or len(wanted) + len(refused) < len(
                    words):
                continue
            if wanted & set(platforms) and not refused & set(platforms):
                found.add(name)
        return found

    def test_bindep(self):
        for how, platforms in ((packages.DEB, ('dpkg',)),
                               (packages.RPM, ('rpm', 'redhat')),
                               (packages.SUSE, ('rpm', 'suse'))):
            self.assertEqual(self.named(how), self.bindep(*platforms))

    def test_installation_page(self):
        page = (ROOT / 'doc/source/install/index.rst').read_text()
        words = re.search(r'# apt-get install --yes ((?:\S+ |\\\s+)*\S+)\n',
                          page).group(1)
        self.assertEqual(self.named(packages.DEB),
                         set(words.split()) - {'\\'})
