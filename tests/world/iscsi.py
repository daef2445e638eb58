# SPDX-License-Identifier: Apache-2.0
"""What simulated nodes serve over iSCSI, and what they attach from others."""

from cinder_localclone.core import exceptions
from cinder_localclone.core.interfaces import iscsi as interfaces
from cinder_localclone.core import iscsi
from cinder_localclone.core import names
from tests.world import disks
from tests.world import images


class SimExports(images.SimSnapshotExports, interfaces.Exports):
    def __init__(self, node):
        self.node = node
        self.portal = 'portal of ' + node.host
        #: Portals at addresses that it has besides.
        self.others = set()
        #: Where the sources of moves were exported last.
        self.locations = {}
        #: Connections that were ended a moment ago, as its service knows:
        #: volume, initiator or None for all.
        self.ended = set()
        #: CHAP users of what is served: by volume and initiator.
        self.users = {}

    def _insist_device(self, name):
        self.node.world.insist(name in self.node.devices,
                               'nothing to export')

    def _back(self, volume_id, device):
        """The kernel gives a device to one alone."""
        name = device.rpartition('/')[2] or names.handle(volume_id)
        self._insist_device(name)
        self.node.world.insist(not any(
            each.get('below') == name for each in self.node.devices.values()),
            'what is above has what is to be served')
        self.node.backing[volume_id] = name

    def has_portal(self, portal):
        return portal == self.portal or portal in self.others

    def portal_for(self, portal):
        return portal if self.has_portal(portal) else self.portal

    def source_location(self, move_id):
        return iscsi.location(self.portal, 3260, move_id)

    def location_for(self, move):
        portal = iscsi.portal_of(move.location).removesuffix(':3260')
        return iscsi.location(
            self.portal_for(portal), 3260, move.move_id)

    def export_source(self, move):
        if not (move.initiator and move.auth):
            raise exceptions.ExportFailed(reason='no initiator, or no secret')
        self._insist_device(names.source(move.move_id))
        before = (move.move_id in self.node.exports
                  and self.locations[move.move_id] == move.location)
        self.node.exports[move.move_id] = move.volume_id
        self.locations[move.move_id] = move.location
        return not before

    def is_source_exported_as_recorded(self, move):
        return (bool(move.initiator and move.auth)
                and move.move_id in self.node.exports
                and self.locations[move.move_id] == move.location
                == self.location_for(move))

    def _insist_unread(self, move_id):
        self.node.world.insist(not any(
            move_id in node.sessions for node in
            self.node.world.nodes.values() if not node.is_away),
            'a destination loses its source')

    def withdraw_source(self, move_id):
        self._insist_unread(move_id)
        return self.node.exports.pop(move_id, None) is not None

    def withdraw_strays(self, wanted):
        strays = [s for s in self.node.exports if not wanted(s)]
        for move_id in strays:
            self._insist_unread(move_id)
            del self.node.exports[move_id]
        return strays

    def is_exported(self, volume_id):
        return volume_id in self.remote()

    def is_source_exported(self, move_id):
        return move_id in self.node.exports

    @staticmethod
    def has_open_unexported(volume_id):
        return False

    @staticmethod
    def unfinished():
        return set()

    def remote(self):
        found: dict[str, set[str]] = {}
        for volume_id, initiator in self.node.remote:
            found.setdefault(volume_id, set()).add(initiator)
        return found

    def withdraw_unnamed(self, volume_id, unnamed, at_once=False):
        gone = {(volume_id, iqn) for iqn in unnamed}
        if not at_once:
            gone -= self.node.exported
        gone &= self.node.remote
        self.node.remote -= gone
        return bool(gone)

    def export_volume(self, volume_id, initiator, auth, readonly=False,
                      remote=False, device=''):
        self._back(volume_id, device)
        self.node.remote.add((volume_id, initiator))
        self.node.exported.add((volume_id, initiator))
        properties = {'target_iqn': initiator, 'target_portal': self.portal,
                      **dict(zip(('auth_method', 'auth_username',
                                  'auth_password'), auth.split()))}
        self.users[volume_id, initiator] = properties.get('auth_username')
        self.ended -= {(volume_id, initiator), (volume_id, None)}
        return properties

    def export_again(self, volume_id, initiator, properties, device=''):
        if not self.ended.isdisjoint({
                (volume_id, initiator), (volume_id, None)}):
            return False
        self._back(volume_id, device)
        before = (volume_id, initiator) in self.node.remote
        self.node.remote.add((volume_id, initiator))
        self.users[volume_id, initiator] = properties.get('auth_username')
        return not before

    def is_last(self, volume_id, initiator):
        left = [each for each in self.node.remote if each[0] == volume_id]
        return bool(left) and (
            initiator is None or left == [(volume_id, initiator)])

    def withdraw_volume(self, volume_id, initiator):
        self.ended.add((volume_id, initiator))
        gone = {each for each in self.node.remote if each[0] == volume_id
                and initiator in (None, each[1])}
        self.node.exported -= gone
        if gone and self._waits(volume_id):
            raise exceptions.TargetTimeout(seconds=20)
        self.node.remote -= gone
        return bool(gone)

    def problem(self):
        return ''

    def _waits(self, volume_id):
        """An initiator reads what only a source has that does not answer."""
        below = self.node.devices[names.handle(volume_id)]['below']
        move_id = self.node.devices.get(below, {}).get('record')
        move = self.node.node.moves.get_move(move_id)
        return (move_id in self.node.sessions and move
                and self.node.world.nodes[move.source].is_away)


class SimSessions(interfaces.Sessions):
    def __init__(self, node):
        self.node = node
        #: Volumes that were attached a moment ago.
        self.begun = set()
        #: CHAP users by which volumes were passed through last.
        self.users = {}

    def may_be_attached_by(self, volume_id, user):
        return self.users.get(volume_id, user) == user

    def was_just_attached(self, volume_id):
        return volume_id in self.begun

    def initiator(self):
        return 'iqn.' + self.node.host

    def disk(self, move):
        return self.node.sessions.get(move.move_id) and move.move_id

    def _exporter(self, move):
        """The node with the portal that the move's record tells."""
        portal = iscsi.portal_of(move.location).removesuffix(':3260')
        return next((each for each in self.node.world.nodes.values()
                     if each.sim_exports.has_portal(portal)),
                    self.node.world.nodes[move.source])

    def attach(self, move):
        other = self._exporter(move)
        if (move.move_id not in other.exports or move.location !=
                other.sim_exports.locations[move.move_id]):
            raise exceptions.SourceUnreachable(portal='p', reason='r')
        self.node.world.insist(
            disks.size(other.devices[names.source(move.move_id)])
            == move.size_bytes, 'a source of another size')
        self.node.sessions[move.move_id] = other.host
        return move.move_id

    def remotes(self):
        return {volume_id: 'disk of %s' % volume_id
                for volume_id, home in self.node.remotes.items()
                if names.same_backend(home, self.node.host)}

    def recorded_remotes(self):
        return self.remotes()

    def attach_remote(self, volume_id, size_bytes, properties, in_use):
        home = self.node.world.node_at(properties['target_portal'])
        told = volume_id, properties['target_iqn']
        if home is None or home.is_away or told not in home.remote:
            raise exceptions.SourceUnreachable(portal='p', reason='r')
        self.node.world.insist(
            disks.size(home.devices[names.handle(volume_id)]) >= size_bytes,
            'the home serves less')
        user = properties['auth_username']
        if not in_use and (self._is_down(volume_id) or
                           self.users.get(volume_id, user) != user):
            self.node.remotes.pop(volume_id, None)
        if (volume_id not in self.node.remotes
                and home.sim_exports.users.get(told, user) != user):
            raise exceptions.LoginFailed(
                iqn=told[1], portal=home.sim_exports.portal, reason='CHAP')
        if (self.node.remotes.get(volume_id) != home.host
                or self.node.scanned[volume_id] < size_bytes):
            self.node.scanned[volume_id] = disks.size(
                home.devices[names.handle(volume_id)])
        self.node.remotes[volume_id] = home.host
        self.begun.add(volume_id)
        self.users[volume_id] = user
        return self.remotes()[volume_id]

    def end_remote(self, volume_id):
        self.node.world.insist(
            self._is_down(volume_id) or
            {'below': 'disk of ' + volume_id} not in self._opened(),
            'a guest loses what is passed through')
        self.users.pop(volume_id, None)
        return self.node.remotes.pop(volume_id, None) is not None

    def end_remote_if_down(self, volume_id):
        return self._is_down(volume_id) and self.end_remote(volume_id)

    def _is_down(self, volume_id):
        home = self.node.world.nodes.get(self.node.remotes.get(volume_id))
        return home is not None and (home.is_away or volume_id not in {
            each for each, _who in home.remote})

    def end_other_remotes(self, volume_id, iqn):
        """There is one session for a volume here."""

    def is_down(self, move):
        return any(self.node.world.nodes[host].is_away for host in (
            move.source, self.node.remotes.get(move.volume_id)) if host)

    def _opened(self):
        """The handles that others have open, and those below what is."""
        found = [self.node.devices.get(name) for name in self.node.opened]
        return [self.node.devices.get(each['below'], each)
                if each and str(each.get('below')).startswith('localclone-')
                and names.volume_of_handle(each['below']) else each
                for each in found]

    def end_if_down(self, move):
        down = (move.move_id in self.node.sessions and
                self.node.world.nodes[move.source].is_away)
        if down:
            self.detach(move)
        return down

    def detach(self, move):
        source = self.node.world.nodes.get(move.source)
        clone = {'below': names.clone(move.move_id)}
        self.node.world.insist(
            source is None or source.is_away or clone not in self._opened(),
            'a guest loses the source that it reads from')
        self.node.sessions.pop(move.move_id, None)
