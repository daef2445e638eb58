# SPDX-License-Identifier: Apache-2.0
"""A node as a hypervisor: libvirt, QEMU (software) and nova-compute."""

import uuid

from lab.core import process
from lab.nova import config as nova_config

NAME = 'nova-compute'


def service(node, action) -> None:
    """Start, stop, kill or restart nova-compute; guests run on.

    The first start after a boot starts libvirt, too.

    :param action: one of these verbs
    """
    conf = node.directory / 'nova.conf'
    if action in ('start', 'restart'):
        _write_configs(node, conf)
        node.run(['/bin/bash', node.lab.repo / 'lab/nova/hypervisor_init.sh',
                  node.directory / 'libvirt', _keys(node.lab),
                  node.address], timeout=90)
    node.daemon(action, NAME, NAME, conf, _runner(node.lab))


def _runner(lab):
    """Return the wrapper of nova-compute: online_extend.py if enabled."""
    if not lab.settings['options'].get('localclone_enable_online_extend'):
        return ''
    return '%s %s ' % (lab.python, lab.repo / 'lab/nova/online_extend.py')


def make_keys(lab) -> None:
    """Create the SSH key of a lab, by which its nodes' Novas connect."""
    _keys(lab).mkdir()
    process.run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '',
                '-f', str(_keys(lab) / 'key'))


def _keys(lab):
    return lab.directory / 'ssh'


def _write_configs(node, conf):
    lab = node.lab
    state, libvirt = node.directory / 'nova', node.directory / 'libvirt'
    for directory in (state, libvirt):
        directory.mkdir(parents=True, exist_ok=True)
    conf.write_text(nova_config.compute(
        node.name, node.address, lab.venv, state, conf,
        lab.settings['debug'], lab.settings['keys']))
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, node.name)
    (libvirt / 'libvirtd.conf').write_text(
        nova_config.libvirtd(node.address, identity))
    (libvirt / 'qemu.conf').write_text(nova_config.qemu())


def _record(node):
    """Return Nova's record of nova-compute on a node."""
    services = node.lab.client('nova').get('/os-services').json()['services']
    return next(each for each in services
                if each['binary'] == NAME and each['host'] == node.name)


def reported(node):
    """Return the time of the last report of nova-compute on a node."""
    return _record(node)['updated_at']


def force_down(node, down) -> None:
    """Tell Nova to regard nova-compute of a node as down, or no longer."""
    node.lab.client('nova').put(
        '/os-services/%s' % _record(node)['id'],
        {'forced_down': down}).raise_for_status()


def is_running(node) -> bool:
    """Return whether nova-compute of a node runs."""
    return not node.run('kill -0 $(cat /run/%s.pid)' % NAME,
                        check=False).returncode


def wait(lab, timeout=180) -> None:
    """Wait until Nova can place servers on all nodes."""
    nova = lab.client('nova')

    def ready():
        for node in lab.nodes.values():
            if not is_running(node):
                raise process.LabError('%s ended on %s; see %s' % (
                    NAME, node.name, lab.logs))
        hypervisors = nova.get('/os-hypervisors/detail').json()['hypervisors']
        return {h['service']['host'] for h in hypervisors if h['state'] == 'up'
                } == set(lab.nodes)
    process.wait_for('the compute services', ready, timeout,
                     lab.logs / 'node1.nova-compute.log', every=1)
