# SPDX-License-Identifier: Apache-2.0
"""Backups and images: Cinder itself reads the volume."""

from lab.core import extras
from lab.operations import operation
from lab.operations import subject as subjects

#: Seconds: all of it is read, and some on a slow link.
READING = 300


class Upload(operation.Operation):
    """To an image, whose file is compared."""

    name = 'upload to image'
    alone = reads = True
    patience = READING
    image = None

    def ask(self):
        subject = self.subject
        self.content = subject.content()
        self.image = subject.act(
            'os-volume_upload_image', image_name='of-' + subject.volume,
            disk_format='raw', container_format='bare').json()[
                'os-volume_upload_image']['image_id']
        self._wait(self.seconds)
        return 'works'

    def _wait(self, seconds):
        subject, glance = self.subject, self.lab.client('glance', 'demo')

        def ended():
            if subject.row()['status'] != 'available':
                return False
            status = glance.get('/images/' + self.image).json()['status']
            if status != 'active':
                raise subjects.Refused('the image is ' + status)
            return True
        subjects.wait('the image', ended, seconds, every=2)
        subjects.check_file(
            self.lab.control.directory / 'images' / self.image, self.content)

    def finish(self):
        self._wait(operation.AFTERWARDS)

    def clean(self):
        if self.image:
            self.lab.client('glance', 'demo').delete('/images/' + self.image)


class Backup(operation.Operation):
    """Into files, of which the first is compared."""

    name = 'backup'
    alone = reads = True
    patience = READING
    made = None

    def request(self):
        """For the API; what there must be."""
        return {'force': True}, self.subject.content()

    def ask(self):
        self.subject.check_running()
        request, self.content = self.request()
        self.made = self.post('/backups', {'backup': dict(
            request, volume_id=self.subject.volume)})['backup']['id']
        self._wait(self.seconds)
        return 'works'

    def _wait(self, seconds):
        def ended():
            backup = self.subject.cinder.get(
                '/backups/' + self.made).json()['backup']
            if backup['status'] == 'error':
                raise subjects.Refused('backup: %s' % backup['fail_reason'])
            return backup['status'] == 'available'
        subjects.wait('the backup', ended, seconds, every=2)
        self.subject.check_running()
        first, = extras.backups(self.lab).glob(
            '**/*%s*-00001' % self.made)
        subjects.check_file(first, self.content)

    def finish(self):
        self._wait(operation.AFTERWARDS)

    def clean(self):
        if self.made:
            path = '/backups/' + self.made
            subjects.ask(self.subject.cinder.delete(path))
            self.wait_gone(path, 60)


class BackupInUse(Backup):
    name = 'backup in use'
    in_use = True


class BackupOfSnapshot(Backup):
    name = 'backup of snapshot'
    snapshot = True
    reads = False  # not of the volume

    def request(self):
        return ({'snapshot_id': self.subject.snapshot, 'force': True},
                self.subject.image)


OPERATIONS = (Upload, Backup, BackupInUse, BackupOfSnapshot)
