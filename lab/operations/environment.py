# SPDX-License-Identifier: Apache-2.0
"""The lab that operations are tried in, and what is looked at there."""

import re

from lab.core import extras
from lab.core import instance as instances
from lab.core import observe
from lab.core import process
from lab.operations import stale
from lab.scenarios import checks
from lab.scenarios import disk as disks
from lab.scenarios import environment as environments
from lab.scenarios.once import groups
from lab.scenarios.once import leaving

#: Sweeps come often, so that cells need not wait for them. Few copies run at a
#: time, with 2 MiB in flight at most, as with any limit of their rate: the
#: others wait for their turn, and what is read on the same slow link is not
#: behind all of that. What waits for a copy does so longer than a situation
#: ever lasts.
OPTIONS = {'localclone_snapshot_timeout': 1800,
           'localclone_reconcile_interval': 10,
           'localclone_max_copy_rate_mib': 1000,
           'localclone_max_copies_in': 2, 'localclone_max_copies_out': 2,
           'localclone_verify_timeout': 20,
           'localclone_enable_online_extend': True}
QUOTAS = {'volumes': 400, 'gigabytes': 4000, 'snapshots': 400,
          'backups': 100, 'backup_gigabytes': 1000, 'groups': 50}


class Environment(environments.Environment):
    """A lab of three nodes, with another backend and a backup service."""

    def up(self):
        """Bring the lab up if it is not; what an earlier run left goes."""
        fresh = not self.lab.is_up
        if fresh:
            self.lab.up(progress=lambda text: self.say('lab: ' + text),
                        nodes=3, options=OPTIONS, api_threads=16,
                        control_options=stale.OPTIONS)
        if self.lab.settings.get('control_options') != stale.OPTIONS:
            raise process.LabError('lab "%s" was not brought up for '
                                   'operations: take it down first' % (
                                       self.lab.name))
        extras.raise_quotas(self.lab, 'demo', **QUOTAS)
        if fresh:
            third = self.nodes['node3']
            extras.second_backend(self.lab, third)
            extras.backup_service(self.lab, third, backup_file_size=64 << 20,
                                  backup_compression_algorithm='none')
            self._types()
        self.heal()
        self.clear()

    def _types(self):
        admin = self.lab.cinder()
        for name, specs in (
                (leaving.OTHER_TYPE, {'volume_backend_name': 'localclone',
                                      'lab:kind': 'other'}),
                (leaving.ANYWHERE, {})):
            admin.post('/types', json={'volume_type': {
                'name': name, 'extra_specs': specs}}).raise_for_status()
        admin.post('/group_types', json={'group_type': {
            'name': groups.GROUP_TYPE}}).raise_for_status()

    def heal(self):
        """Everything runs, and Cinder asks whom it should."""
        stale.forget(self.lab)
        super().heal()

    @property
    def is_misled(self):
        """Whether Cinder asks the home that a volume had before."""
        return stale.is_on(self.lab)

    def clear(self):
        """Delete all that there is, whatever came of it.

        :raises LabError: if anything is left then
        """
        for node in self.nodes.values():
            instances.stop_writing(node)
        admin = self.lab.cinder()
        for backup in admin.get('/backups?all_tenants=1').json()['backups']:
            admin.delete('/backups/' + backup['id'])
        volumes = [row[0] for row in observe.sql(
            self.lab, "SELECT id FROM volumes WHERE deleted = 0 AND "
            "project_id != 'cinder-localclone'")]
        for user in ('demo', 'admin'):
            nova = self.lab.cinder('nova' if user == 'demo' else user)
            for found in nova.get('/attachments').json()['attachments']:
                nova.delete('/attachments/' + found['id'])
        process.in_parallel(
            [lambda v=volume: self._remove(v) for volume in volumes], 6)
        left = checks.settled_with(self.lab, [], 90)
        if left:
            raise process.LabError('left behind: ' + '; '.join(left))
        # What a node had that was down, it removes at its next look.
        try:
            process.wait_for('snapshots to go',
                             lambda: not list(self._strays()), 60, every=1)
        except process.LabError:
            raise process.LabError('left behind: ' + '; '.join(
                self._strays()))

    def _remove(self, volume):
        disks.Disk(self.lab, volume, 'admin').remove()

    def _strays(self):
        for name, node in self.nodes.items():
            lvs = node.run('lvs --noheadings -o lv_name cinder-volumes '
                           '2>/dev/null').stdout.split()
            for lv in lvs:
                if lv.startswith('_snapshot-'):
                    yield 'LV %s on %s' % (lv, name)

    # -- what a request may have changed

    def footprint(self, volume):
        """Rows, LVs and devices of a volume; two of them can be compared.

        Not how far it is copied, nor Cinder's own statuses.
        """
        rows = observe.sql(
            self.lab, "SELECT id, _name_id, host, size, project_id, "
            "volume_type_id, replication_driver_data FROM volumes WHERE "
            "deleted = 0 AND (id = '%s' OR migration_status = 'target:%s')"
            % (volume, volume))
        snapshots = observe.sql(
            self.lab, "SELECT id, provider_location FROM snapshots WHERE "
            "deleted = 0 AND volume_id = '%s' AND status != 'error'" % volume)
        ids = '|'.join({word for row in rows + snapshots for word in row
                        if re.fullmatch('[0-9a-f-]{36}', word)})
        on_nodes = {}
        for name, node in self.nodes.items():
            if node.is_on:
                found = node.run(
                    '{ lvs --noheadings -o lv_name,lv_size,lv_tags '
                    '2>/dev/null; dmsetup table; } | grep -E "%s" || true'
                    % ids).stdout.splitlines()
                # lvs makes its columns as wide as those of all volumes.
                on_nodes[name] = sorted(' '.join(line.split())
                                        for line in found)
        return {'rows': sorted(rows), 'snapshots': sorted(snapshots),
                'nodes': on_nodes}

    # -- what the owner is told

    def told(self):
        """All that owners were told by the driver so far, by ids.

        The last letter of a message's detail is the request's.
        """
        return {row[0]: (row[1][:-1], row[2]) for row in observe.sql(
            self.lab, "SELECT id, detail_id, resource_uuid FROM messages "
            "WHERE detail_id LIKE 'LC%'")}

    def codes(self, before, volume):
        """What was told since of a volume, or of what is made of it.

        :param before: what :meth:`told` said then
        """
        ids = {volume} | {row[0] for row in observe.sql(
            self.lab, "SELECT id FROM snapshots WHERE volume_id = '%s' "
            "UNION SELECT v.id FROM volumes v LEFT JOIN snapshots s ON "
            "s.id = v.snapshot_id WHERE v.source_volid = '%s' OR "
            "s.volume_id = '%s' OR v.display_name = 'backup-vol-%s'"
            % ((volume,) * 4))}
        return sorted({code for key, (code, about) in self.told().items()
                       if key not in before and about in ids})


def changes(before, after):
    """How two footprints differ, in words; '' if they don't."""
    words = []
    for part in ('rows', 'snapshots'):
        if before[part] != after[part]:
            words.append('%s: %s, were %s' % (part, after[part],
                                              before[part]))
    for name in before['nodes']:
        now = after['nodes'].get(name)
        if now != before['nodes'][name]:
            words.append('%s: %s, was %s' % (name, now,
                                             before['nodes'][name]))
    return '; '.join(words)
