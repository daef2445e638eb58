# SPDX-License-Identifier: Apache-2.0
extensions = ['openstackdocstheme', 'reno.sphinxext']
project = 'cinder-localclone release notes'
html_theme = 'openstackdocs'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
version = release = ''
root_doc = 'index'
