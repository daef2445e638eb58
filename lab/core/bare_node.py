# SPDX-License-Identifier: Apache-2.0
"""A node of a lab that has nothing of the driver any more."""


def make(node) -> None:
    """End the node's service; its first disk becomes blank."""
    node.service('stop')
    node.run('set -e; vgremove -q -ff -y cinder-volumes; '
             'pvremove -q -y /dev/vda; wipefs -q -a /dev/vda; '
             'rm -f /etc/lvm/lvmlocal.conf '
             '/etc/udev/rules.d/11-localclone.rules; '
             'udevadm control --reload; '
             'mkdir -p /etc/cinder/rootwrap.d /etc/modules-load.d')
