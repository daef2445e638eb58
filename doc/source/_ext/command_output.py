# SPDX-License-Identifier: Apache-2.0
"""``.. command-output:: WORDS``: what ``cinder-localclone WORDS`` prints.

The command's own code runs, on a made-up backend: its output on the page
cannot fall behind the code. ``:lines: N`` cuts a long output after N lines.
"""

import shlex

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.parsers.rst import directives

import sample_backend


class CommandOutput(Directive):
    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {'lines': directives.positive_int}

    def run(self):
        text, code = sample_backend.run(shlex.split(self.arguments[0]))
        lines = text.splitlines(keepends=True)
        if len(lines) > self.options.get('lines', len(lines)):
            text = ''.join([*lines[:self.options['lines']], '...\n'])
        if code:
            text += 'exit code %d\n' % code
        return [nodes.literal_block(text, text, language='none')]


def setup(app):
    app.add_directive('command-output', CommandOutput)
    return {'parallel_read_safe': True}
