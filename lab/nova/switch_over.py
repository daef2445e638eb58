# SPDX-License-Identifier: Apache-2.0
"""Where the time goes while a live migration has its guest stand still.

QEMU says when it stops a guest, which part of a migration begins, and when
the guest goes on at the other end. The clocks of the nodes are the machine's.
"""

import datetime
import re

#: As ``virsh qemu-monitor-event --timestamp`` prints an event.
EVENT = re.compile(r'^(\S+ \S+): event (STOP|RESUME|MIGRATION) for domain '
                   r"'([^']+)': ?(.*)$")


class SwitchOver:
    """Listens to QEMU on all nodes while it is entered.

    :param domain: libvirt's name of the guest
    """

    def __init__(self, lab, domain):
        self.lab = lab
        self.domain = domain
        self.events = []

    def __enter__(self):
        self._listeners = {
            node.name: node.popen(
                'exec stdbuf -oL virsh qemu-monitor-event --loop --timestamp '
                '--timeout 600')
            for node in self.lab.nodes.values()}
        return self

    def __exit__(self, *_error):
        for name, listener in self._listeners.items():
            listener.kill()
            listener.wait(10)
            self.events += [(*event, name) for event in events(
                listener.stdout.decode(errors='replace'), self.domain)]
        self.events.sort()

    def parts(self):
        """The last standstill: [(what ended there, seconds it took)]."""
        return parts(self.events)


def events(text, domain):
    """What QEMU has said of a guest: [(second, what)]."""
    found = []
    for line in text.splitlines():
        told = EVENT.match(line)
        if told and told.group(3) == domain:
            status = re.search(r'"status":"([^"]+)"', told.group(4))
            found.append((
                datetime.datetime.strptime(
                    told.group(1), '%Y-%m-%d %H:%M:%S.%f%z').timestamp(),
                status.group(1) if status else told.group(2)))
    return found


def parts(told):
    """Between a guest's last stop and its going on.

    :param told: [(second, what, node)], in order
    """
    stops = [index for index, event in enumerate(told) if event[1] == 'STOP']
    if not stops:
        return []
    found, last = [], told[stops[-1]][0]
    for second, what, node in told[stops[-1] + 1:]:
        found.append(('%s on %s' % (what, node), second - last))
        last = second
        if what == 'RESUME':
            break
    return found
