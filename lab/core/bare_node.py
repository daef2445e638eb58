# SPDX-License-Identifier: Apache-2.0
"""A node of a lab that has nothing of the driver any more."""

import re

from lab.core import config


def without_backend(text, backend='localclone') -> str:
    """A volume service's configuration without a backend.

    :param text: as :func:`.config.cinder_volume` writes it
    """
    text = re.sub(r'(?ms)^\[%s\]\n.*?(?=^\[|\Z)' % backend, '', text)
    return re.sub(r'(?m)^enabled_backends = .*\n', '', text)


def without_helpers(text) -> str:
    """It with privileged helpers that start as they do by default."""
    return re.sub(r'(?m)^\[\w+\]\nhelper_command = .*\n', '', text)


def cinder_conf(node, path) -> str:
    """The configuration of a node's volume service, without a backend.

    :param path: of the file that it will be
    """
    return without_backend(config.cinder_volume(
        node.name, node.address, node.lab.venv, path, 'localclone'))


def make(node) -> None:
    """End the node's service; its first disk becomes blank."""
    node.service('stop')
    node.run('set -e; vgremove -q -ff -y cinder-volumes; '
             'pvremove -q -y /dev/vda; wipefs -q -a /dev/vda; '
             'rm -f /etc/lvm/lvmlocal.conf '
             '/etc/udev/rules.d/11-localclone.rules; '
             'udevadm control --reload; '
             'mkdir -p /etc/cinder/rootwrap.d /etc/modules-load.d')
