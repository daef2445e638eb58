# SPDX-License-Identifier: Apache-2.0
"""The lab by hand."""

import argparse
import os
import signal
import subprocess
import sys

from lab.core import process
from lab.core import report
from lab import lab as labs
from lab.nova import compute


def parser():
    """The parser of the command line."""
    top = argparse.ArgumentParser(
        prog='python3 -m lab', description='Two real nodes (user-mode Linux), '
        'or three, and an OpenStack control plane on this machine, for '
        'cinder_localclone.')
    top.add_argument('--name', help='which lab (default: $LOCALCLONE_LAB, '
                     'or "lab"); labs of different names do not meet')
    commands = top.add_subparsers(dest='command', required=True)

    def add(name, text, node=False, parents=()):
        command = commands.add_parser(name, help=text, description=text,
                                      parents=parents)
        if node:
            command.add_argument('node', choices=('node1', 'node2', 'node3'))
        return command
    parts = argparse.ArgumentParser(add_help=False)
    parts.add_argument('--nova', action='store_true', help='with Nova, '
                       'libvirt and QEMU: servers that run on the nodes')
    parts.add_argument('--keys', action='store_true', help='with Barbican: '
                       'secrets, and keys of encrypted volumes')
    add('install', 'install what the lab needs (apt, PyPI), start nothing',
        parents=[parts])
    up = add('up', 'bring the lab up', parents=[parts])
    up.add_argument('--disks', choices=('volatile', 'plain', 'memory'),
                    default='volatile', help='volatile: a write cache that '
                    'a power cut loses; plain: none, faster; memory: not on '
                    'this machine\'s disk, nothing to be flushed')
    up.add_argument('--disk-gib', type=int, default=40,
                    help='size of each sparse disk in GiB')
    up.add_argument('--nodes', type=int, choices=(2, 3), default=2,
                    help='how many nodes (default 2)')
    up.add_argument('--no-service', action='store_true',
                    help='do not start the volume services')
    up.add_argument('--debug', action='store_true')
    up.add_argument('--set', action='append', default=[], metavar='O=V',
                    help='an option of the driver, on all nodes')
    down = add('down', 'end the lab; nothing is left behind')
    down.add_argument('--keep-logs', action='store_true')
    add('status', 'what runs')
    run = add('run', 'run a command in a node', node=True)
    run.add_argument('--timeout', type=float, default=600,
                     help='seconds (default 600)')
    run.add_argument('words', nargs=argparse.REMAINDER)
    add('power-cut', 'end a node at once; unflushed writes are lost', True)
    on = add('power-on', 'boot a node again', True)
    on.add_argument('--no-service', action='store_true')
    add('network-cut', 'take a node off the network', True)
    add('network-heal', 'put it back', True)
    service = add('service', 'the volume service of a node', True)
    service.add_argument('action', choices=(
        'start', 'stop', 'kill', 'restart'))
    service.add_argument('--backend', choices=('localclone', 'stock'),
                         default='localclone')
    hypervisor = add('compute', 'nova-compute of a node; guests run on',
                     node=True)
    hypervisor.add_argument('action', choices=(
        'start', 'stop', 'kill', 'restart'))
    openstack = add('openstack', 'the openstack command, as admin')
    openstack.add_argument('words', nargs=argparse.REMAINDER)
    add('env', 'export lines for the openstack command')
    add('logs', 'where the logs are')
    return top


def status(lab):
    """Print what runs, and what LVM has on each node."""
    rows = [(name, 'on' if each.is_on else 'off', each.address)
            for name, each in lab.nodes.items()]
    for name in (*lab.control.apis, *lab.control.daemons):
        pid = lab.processes.pid(name)
        rows.append(('process', 'runs' if pid else 'ended',
                     name + (' pid %d' % pid if pid else '')))
    for api in ('cinder', 'nova') if lab.settings['nova'] else ('cinder',):
        rows += [('service', service['state'],
                  '%(binary)s %(host)s' % service)
                 for service in lab.client(api).get('/os-services').json()[
                     'services']]
    if lab.settings['nova']:
        rows += [('server', server['status'].lower(), '%s on %s' % (
            server['name'], server['OS-EXT-SRV-ATTR:host']))
            for server in lab.client('nova').get(
                '/servers/detail?all_tenants=1').json()['servers']]
    for name, each in lab.nodes.items():
        if each.is_on:
            groups = each.run('vgs --noheadings -o vg_name,vg_size,vg_free '
                              '2>/dev/null; lvs --noheadings -o vg_name,'
                              'lv_name,lv_size,data_percent 2>/dev/null')
            rows += [(name, 'LVM', line.strip())
                     for line in groups.stdout.splitlines()]
    print(report.table(('part', 'state', 'detail'), rows))


def run_in_node(lab, options):
    """Run a command in a node; its output as it comes, its exit code."""
    words = options.words[1:] if options.words[:1] == ['--'] else (
        options.words)
    running = lab.nodes[options.node].popen(
        words[0] if len(words) == 1 else words, options.timeout)
    shown = [0, 0]
    while True:
        alive = running.running
        for index, (data, stream) in enumerate((
                (running.stdout, sys.stdout), (running.stderr, sys.stderr))):
            stream.buffer.write(data[shown[index]:])
            stream.flush()
            shown[index] = len(data)
        if not alive:
            return 255 if running.returncode is None else running.returncode
        running.wait(0.1)


def main(argv=None):
    """Act as the words say; the exit code."""
    options = parser().parse_args(argv)
    lab = labs.Lab(options.name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return act(lab, options) or 0
    except process.LabError as exc:
        print('lab: %s' % exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        return 130


def act(lab, options):
    """Do what was asked for.

    :returns: the exit code; None: 0
    """
    command = options.command
    if command == 'install':
        lab.settings.update(nova=options.nova, keys=options.keys)
        lab.install()
    elif command == 'up':
        lab.up(progress=lambda text: print(text, flush=True),
               service=not options.no_service, disks=options.disks,
               disk_gib=options.disk_gib, debug=options.debug,
               nova=options.nova, keys=options.keys, nodes=options.nodes,
               options=dict(each.split('=', 1) for each in options.set))
    elif command == 'down':
        lab.down(keep_logs=options.keep_logs)
    elif command == 'logs':
        print(lab.logs)
    elif not lab.is_up:
        raise process.LabError('lab "%s" is not up' % lab.name)
    elif command == 'status':
        status(lab)
    elif command == 'run':
        return run_in_node(lab, options)
    elif command == 'openstack':
        return subprocess.call(
            [str(lab.venv / 'bin/openstack'), *options.words],
            env=dict(os.environ, PYTHONPATH='', **lab.credentials()),
            preexec_fn=lambda: process.enter_namespace(lab.namespace))
    elif command == 'env':
        for pair in lab.credentials().items():
            print('export %s=%s' % pair)
        print('# run it with: ip netns exec %s %s/bin/openstack' % (
            lab.namespace, lab.venv))
    else:
        if options.node not in lab.nodes:
            raise process.LabError('lab "%s" has no %s' % (
                lab.name, options.node))
        node = lab.nodes[options.node]
        if command == 'power-on':
            node.power_on()
            lab.start_services(node, volume=not options.no_service)
        elif command == 'compute':
            if not lab.settings['nova']:
                raise process.LabError('the lab was brought up without Nova')
            compute.service(node, options.action)
        elif command == 'service':
            if options.action in ('start', 'restart'):
                lab.write_service_config(node, options.backend)
            node.service(options.action, options.backend)
        else:
            getattr(node, command.replace('-', '_'))()


if __name__ == '__main__':
    sys.exit(main())
