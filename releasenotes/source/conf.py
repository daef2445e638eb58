# SPDX-License-Identifier: Apache-2.0
from docutils import nodes

extensions = ['openstackdocstheme', 'reno.sphinxext']
project = 'cinder-localclone release notes'
html_theme = 'openstackdocs'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
version = release = ''
root_doc = 'index'


def name_first_release(_app, doctree):
    """Give notes that no tag dates the number they will be released under.

    Where there is no tag at all, reno says 0.0.0.
    """
    for title in doctree.findall(nodes.title):
        if title.astext() == '0.0.0':
            title[:] = [nodes.Text('0.1.0')]


def setup(app):
    # Before sphinx collects the titles.
    app.connect('doctree-read', name_first_release, priority=100)
