# SPDX-License-Identifier: Apache-2.0
"""The walks through the code on the contributor's page."""

import re

from tests.helpers.documentation import DOC

ITEM = re.compile(r'^#\. ``([\w.]+)``', re.MULTILINE)


def sequences():
    """The numbered functions of each section with such a list, by title."""
    text = (DOC / 'contribute/index.rst').read_text()
    sections = re.split(r'^(.+)\n=+\n', text, flags=re.MULTILINE)[1:]
    found = {title: ITEM.findall(body) for title, body in zip(
        sections[::2], sections[1::2])}
    return {title: names for title, names in found.items() if names}
