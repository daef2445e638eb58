# SPDX-License-Identifier: Apache-2.0
"""``.. kernels::``: the stock kernels that ``doctor`` knows."""

import pathlib
import sys

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
import kernels_table

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Kernels(Directive):

    def run(self):
        if str(ROOT) not in sys.path:
            sys.path.insert(0, str(ROOT))
        from cinder_localclone.core import kernels
        self.state.document.settings.env.note_dependency(kernels.__file__)
        container = nodes.container()
        self.state.nested_parse(
            StringList(kernels_table.rst(kernels.KERNELS),
                       source=kernels.__file__),
            self.content_offset, container)
        return [container]


def setup(app):
    app.add_directive('kernels', Kernels)
    return {'parallel_read_safe': True}
