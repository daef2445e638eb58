# SPDX-License-Identifier: Apache-2.0
extensions = ['openstackdocstheme', 'oslo_config.sphinxext']
project = 'cinder-localclone'
html_theme = 'openstackdocs'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
version = release = ''
root_doc = 'index'
