# SPDX-License-Identifier: Apache-2.0
"""Backups and images: Cinder itself reads the volume."""

from lab.core import extras
from lab.scenarios import disk as disks
from lab.scenarios.once import operation
from lab.scenarios import requests

#: Seconds: all of it is read, and some on a slow link.
READING = 300


class Upload(operation.Once):
    """To an image, whose file is compared."""

    name = 'upload to image'
    alone = reads = True
    patience = READING
    image = None

    def ask(self):
        disk = self.disk
        self.content = disk.content()
        self.image = disk.act(
            'os-volume_upload_image', image_name='of-' + disk.volume,
            disk_format='raw', container_format='bare').json()[
                'os-volume_upload_image']['image_id']
        self._wait(self.seconds)
        return 'works'

    def _wait(self, seconds):
        disk, glance = self.disk, self.lab.client('glance', 'demo')

        def ended():
            if disk.row()['status'] != 'available':
                return False
            status = glance.get('/images/' + self.image).json()['status']
            if status != 'active':
                raise requests.Refused('the image is ' + status)
            return True
        requests.wait('the image', ended, seconds, every=2)
        disks.check_file(
            self.lab.control.directory / 'images' / self.image, self.content)

    def finish(self):
        self._wait(operation.AFTERWARDS)

    def clean(self):
        if self.image:
            self.lab.client('glance', 'demo').delete('/images/' + self.image)


class Backup(operation.Once):
    """Into files, of which the first is compared."""

    name = 'backup'
    alone = reads = True
    patience = READING
    made = None

    def body(self):
        """For the API; what there must be."""
        return {'force': True}, self.disk.content()

    def ask(self):
        self.disk.check_running()
        body, self.content = self.body()
        self.made = self.post('/backups', {'backup': dict(
            body, volume_id=self.disk.volume)})['backup']['id']
        self._wait(self.seconds)
        return 'works'

    def _wait(self, seconds):
        def ended():
            backup = self.disk.cinder.get(
                '/backups/' + self.made).json()['backup']
            if backup['status'] == 'error':
                raise requests.Refused('backup: %s' % backup['fail_reason'])
            return backup['status'] == 'available'
        requests.wait('the backup', ended, seconds, every=2)
        self.disk.check_running()
        first, = extras.backups(self.lab).glob(
            '**/*%s*-00001' % self.made)
        disks.check_file(first, self.content)

    def finish(self):
        self._wait(operation.AFTERWARDS)

    def clean(self):
        if self.made:
            path = '/backups/' + self.made
            requests.ask(self.disk.cinder.delete(path))
            self.wait_gone(path, 60)


class BackupInUse(Backup):
    name = 'backup in use'
    in_use = True


class BackupOfSnapshot(Backup):
    name = 'backup of snapshot'
    snapshot = True
    reads = False  # not of the volume

    def body(self):
        snapshot = self.place.snapshot
        return {'snapshot_id': snapshot.id, 'force': True}, snapshot.content


OPERATIONS = (Upload, Backup, BackupInUse, BackupOfSnapshot)
