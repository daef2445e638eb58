# SPDX-License-Identifier: Apache-2.0
"""Both ways to encrypt volumes, one after the other."""

from lab.core import instance as instances
from lab.core import process
from lab.encryption import by_driver
from lab.encryption import chapter
from lab.keys import volumes
from lab.nova import compute
from lab.nova import server as servers

WAYS = (volumes.ByNova, volumes.ByDriver)
CHAPTERS = {volumes.ByDriver: by_driver.Chapter}


def run(lab, report, wanted):
    """Tell it; nothing stays in the lab, however it ends.

    :param wanted: whether a way is, by its name
    """
    try:
        clean(lab)
        for way in WAYS:
            if wanted(way.name):
                kind = CHAPTERS.get(way, chapter.Chapter)
                kind(lab, report, way(lab, chapter.OWNER)).run()
                clean(lab)
    finally:
        report.part = ''
        clean(lab)


def clean(lab):
    """Have all run, and delete servers, snapshots and volumes."""
    volumes.key_manager(lab, True)
    for node in lab.nodes.values():
        _start(lab, node)
        chapter.drop_stolen(node)
    lab.wait_for_services()
    compute.wait(lab)
    nova, cinder = lab.client('nova'), lab.cinder()
    for each in nova.get('/servers?all_tenants=1').json()['servers']:
        servers.Server(lab, each['id']).delete()
    for each in cinder.get('/attachments').json()['attachments']:
        instances.as_nova(lab, chapter.OWNER).delete(
            '/attachments/' + each['id'])
    process.wait_for('what is left to go', lambda: _are_gone(lab, cinder),
                     240, every=2)


def _start(lab, node):
    if not node.is_on:
        node.power_on()
        node.operator('restore')
    if not node.serves:
        node.service('start')
    if not compute.is_running(node):
        compute.service(node, 'start')


def _are_gone(lab, cinder):
    """Delete what can be; whether nothing is there any more."""
    snapshots = cinder.get('/snapshots').json()['snapshots']
    for each in snapshots:
        cinder.delete('/snapshots/' + each['id'])
    there = cinder.get('/volumes/detail').json()['volumes']
    for each in there:
        if each['status'] not in ('available', 'error', 'deleting'):
            instances.reset(lab, each['id'])
        cinder.delete('/volumes/' + each['id'])
    return not snapshots and not there
