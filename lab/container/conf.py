# SPDX-License-Identifier: Apache-2.0
"""The configuration of a volume service in a container. Pure."""

import re

VENV = '/var/lib/kolla/venv'
#: Paths which differ in the container, besides the venv.
PATHS = {'/run/cinder/localclone': '/var/lib/cinder',
         VENV + '/etc/cinder/rootwrap.conf': '/etc/cinder/rootwrap.conf'}


def inside(text: str, venv) -> str:
    """Return what ``cinder.conf`` of a node is in the container.

    Privileged processes are started by sudo and rootwrap, as by default.

    :param text: of the node's own file
    :param venv: the path of the lab's venv
    """
    text = text.replace(str(venv), VENV)
    for path, inside in PATHS.items():
        text = text.replace(path, inside)
    return re.sub(r'(?m)^helper_command = .*\n', '', text)
