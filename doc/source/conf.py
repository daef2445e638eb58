# SPDX-License-Identifier: Apache-2.0
import importlib.metadata
import os
import sys
import warnings

# Of Cinder's import; nothing that this build could change.
warnings.filterwarnings('ignore', r'\s*Eventlet is deprecated')
sys.path.insert(0, os.path.join(os.path.dirname(__file__), '_ext'))
# Without graphviz installed, move_states leaves its drawing out, and drawings
# has text instead.
extensions = ['openstackdocstheme', 'oslo_config.sphinxext',
              'sphinx.ext.graphviz', 'move_states', 'command_help',
              'command_output', 'drawings', 'kept_runs', 'lvm_tags_set',
              'monitoring', 'peer_methods', 'privileged_calls',
              'stock_kernels', 'user_messages', 'what_works']
graphviz_output_format = 'svg'
project = 'cinder-localclone'
# A line that begins with root's prompt is no comment.
highlight_language = 'none'
html_theme = 'openstackdocs'
html_static_path = ['_static']
html_css_files = ['pages.css']
openstackdocs_auto_name = False
openstackdocs_auto_version = False
version = release = ''
root_doc = 'index'
# The wheel has the manual page; see lab/manual.py.
man_pages = []


def setup(app):
    # show-options finds the options by it, and is quiet if it finds none.
    if not importlib.metadata.entry_points(group='oslo.config.opts',
                                           name='cinder_localclone'):
        from sphinx import errors
        raise errors.ConfigError(
            'cinder-localclone is not installed, so its options are not '
            'found: pip install --no-deps -e .')
