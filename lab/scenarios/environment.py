# SPDX-License-Identifier: Apache-2.0
"""The lab that operations are tried in: what it takes to make volumes, slow a
link, and have everything run again.
"""

from lab.core import instance as instances
from lab.core import node as nodes
from lab.core import observe
from lab.core import process
from lab.keys import volumes
from lab.scenarios import disk as disks

#: All but the targets keeps its pace: services start, requests are answered.
#: Several may ask at a time.
_BRAKE = '''
tc qdisc replace dev vec0 root handle 1: prio bands 4 &&
tc qdisc replace dev vec0 parent 1:4 handle 40: %s &&
tc filter replace dev vec0 parent 1: protocol ip prio 1 u32 \\
    match ip sport 3260 0xffff %s flowid 1:4
'''


class Environment:
    """A lab; what a suite does in it besides, the suite adds.

    :param say: called with a line of progress
    """

    def __init__(self, lab, say=print):
        self.lab = lab
        self.say = say

    @property
    def nodes(self):
        """The nodes of the lab, by name."""
        return self.lab.nodes

    def create(self, node, count, user='demo', size=1,
               volume_type='localclone'):
        """Volumes on a node: the other one takes none for the moment."""
        cinder = self.lab.cinder(user)
        observe.take_volumes(self.lab, node.name)
        made = []

        def one():
            volume = cinder.post('/volumes', {'volume': {
                'size': size, 'volume_type': volume_type}})
            made.append(volume.raise_for_status().json()['volume']['id'])
            instances.wait_status(cinder, made[-1], 'available', 120)
        try:
            process.in_parallel([one] * count)
        except process.LabError:
            for volume in made:
                disks.Disk(self.lab, volume, user).remove()
            raise
        finally:
            observe.take_volumes(self.lab)
        return made

    def power_on(self, node):
        """Boot a node and start its service."""
        node.power_on()
        node.service('start')

    def expire(self, node):
        """A service that is gone counts as down at once."""
        observe.sql(self.lab,
                    "UPDATE services SET updated_at = UTC_TIMESTAMP() "
                    "- INTERVAL 1 HOUR WHERE host LIKE '%s@%%'" % node.name)

    def brake(self, node, rate=None, to=None):
        """Slow what a node's targets send; None: no more.

        :param to: the node for which that is meant; None: all
        """
        if not node.is_on:
            return
        if rate:
            node.run(_BRAKE % (
                nodes.RATE % rate,
                'match ip dst %s/32' % to.address if to else ''))
        else:
            node.netem()

    def heal(self):
        """Undo whatever was done to the lab; everything runs afterwards."""
        if self.lab.settings['keys']:
            volumes.key_manager(self.lab, True)

        def restore(node):
            node.network_heal()
            if not node.is_on:
                self.power_on(node)
            else:
                self.brake(node)
                self._undo(node)
                if not node.serves:
                    node.service('restart')
            node.wait_service()
        process.in_parallel([lambda n=node: restore(n)
                             for node in self.nodes.values()])
        observe.take_volumes(self.lab)
        self.lab.wait_for_services()

    def _undo(self, node):
        """Undo what was done to a node that is on."""

    def log_marks(self):
        """How long the logs are now; for :meth:`log_since`."""
        return {name: len(node.service_log())
                for name, node in self.nodes.items()}

    def log_since(self, marks, *words, lines=12):
        """What the services logged of something, at warning or worse."""
        logged = []
        for name, node in self.nodes.items():
            for line in node.service_log()[marks.get(name, 0):].splitlines():
                if (' ERROR ' in line or ' WARNING ' in line) and (
                        not words or any(word in line for word in words)):
                    logged.append('%s: %s' % (name, line[:400]))
        return logged[-lines:]
