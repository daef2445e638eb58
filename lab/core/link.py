# SPDX-License-Identifier: Apache-2.0
"""IPsec between the nodes of a lab: strongSwan, as the Ansible role has it.

Each node has its own key. Its configuration is made from the template of the
role.
"""

import json
import pathlib
import re

from lab.core import install
from lab.core import process

#: Debian package: something it brings.
PACKAGES = {
    'charon-systemd': '/usr/sbin/charon-systemd',
    'strongswan-swanctl': '/usr/sbin/swanctl',
    'libstrongswan-standard-plugins':
        '/usr/lib/ipsec/plugins/libstrongswan-openssl.so'}
TEMPLATES = (pathlib.Path(__file__).parents[2]
             / 'ansible/roles/cinder_localclone/templates')
PORT = 3260
#: The proposal of the role for ESP; another for processors without AES, as
#: the nodes have one.
AES = 'aes256gcm16-ecp384-esn'
CHACHA = 'chacha20poly1305-ecp384-esn'
#: Of a node; it is in memory.
DIRECTORY = '/run/link'
#: Where strongSwan reads its configuration, and without which it uses /etc.
ENVIRONMENT = 'SWANCTL_DIR=%(at)s STRONGSWAN_CONF=%(at)s/strongswan.conf ' % {
    'at': DIRECTORY}
#: As Debian has it, with its choice of plugins.
DAEMON = '''charon-systemd {
    load_modular = yes
    plugins {
        include /etc/strongswan.d/charon/*.conf
    }
    filelog {
        log {
            path = %s
            default = 1
            flush_line = yes
        }
    }
}
'''
#: Jinja is in the lab's venv.
_RENDER = '''
import json, sys
import jinja2
print(jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
      .from_string(sys.argv[1]).render(json.loads(sys.argv[2])))
'''


def render(lab, template, name, esp=AES):
    """Return a file of a node, from a template of the role.

    :param name: of the node
    :param esp: the proposal for ESP
    """
    nodes = {each.name: {'address': each.address}
             for each in lab.nodes.values()}
    return process.run(
        str(lab.python), '-c', _RENDER, (TEMPLATES / template).read_text(),
        json.dumps({'localclone_link_name': name,
                    'localclone_link_nodes': nodes,
                    'localclone_link_port': PORT,
                    'localclone_link_esp': esp}))


def protect(lab, esp=AES):
    """Have iSCSI between all nodes travel in ESP; again: with new keys.

    :param esp: the proposal for ESP
    """
    install.packages(print, more=PACKAGES.items())
    keys = {name: _key(node) for name, node in lab.nodes.items()}
    process.in_parallel([
        lambda node=node: _start(
            node, render(lab, 'link.conf.j2', node.name, esp), keys)
        for node in lab.nodes.values()])


def require(lab):
    """Have iSCSI between the nodes blocked unless it is protected."""
    for node in lab.nodes.values():
        node.run('ip -batch -', stdin=render(
            lab, 'link.policies.j2', node.name).encode())


def _key(node):
    """Make a new key of a node; return its public part."""
    return node.run(
        'umask 077; mkdir -p %(at)s/private %(at)s/pubkey; '
        'openssl genpkey -algorithm EC -pkeyopt '
        'ec_paramgen_curve:P-384 -out %(at)s/private/localclone.pem && '
        'openssl pkey -in %(at)s/private/localclone.pem -pubout' % {
            'at': DIRECTORY}).stdout


def _start(node, conf, keys):
    files = {'swanctl.conf': conf, 'strongswan.conf': DAEMON % _log(node), **{
        'pubkey/localclone-%s.pem' % name: key for name, key in keys.items()}}
    for name, text in files.items():
        node.run('cat >%s/%s' % (DIRECTORY, name), stdin=text.encode())
    end(node)
    start(node)


def start(node):
    """Start the daemon of a node with the keys that it has."""
    log = _log(node)
    node.run(ENVIRONMENT + 'setsid charon-systemd >>%s 2>&1 </dev/null & '
             'echo $! >%s/pid' % (log, DIRECTORY))
    process.wait_for('strongSwan of ' + node.name, lambda: not node.run(
        'test -S /run/charon.vici', check=False).returncode, 20, log)
    node.run(ENVIRONMENT + 'swanctl --load-all --noprompt')


def _log(node):
    return node.lab.logs / (node.name + '.link.log')


def lose(node):
    """Have a node forget all sessions at once, as at a power cut."""
    node.run('kill -KILL $(cat %s/pid); rm -f /run/charon.vici; '
             'ip xfrm state flush; ip xfrm policy flush' % DIRECTORY)


def end(node):
    """End the daemon; it takes its policies and keys with it."""
    node.run(
        'p=$(cat %(at)s/pid 2>/dev/null) || exit 0; kill $p; '
        'for i in $(seq 100); do kill -0 $p 2>/dev/null || break; sleep 0.1; '
        'done; rm -f %(at)s/pid /run/charon.vici' % {'at': DIRECTORY})


def unprotect(lab):
    """Have iSCSI between the nodes travel in clear text again."""
    def clear(node):
        end(node)
        node.run('ip xfrm policy flush')
    process.in_parallel([lambda node=node: clear(node)
                         for node in lab.nodes.values() if node.is_on])


def counters(node):
    """Return what a node's kernel has counted of IPsec: {name: count}."""
    return {name: int(count) for name, count in re.findall(
        r'(?m)^(\w+)\s+(\d+)$', node.run('cat /proc/net/xfrm_stat').stdout)}
