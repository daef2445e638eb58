# SPDX-License-Identifier: Apache-2.0
"""The encryption story: volumes encrypted by Nova, then by the driver."""

from lab.encryption import by_driver
from lab.encryption import chapter
from lab.keys import volumes
from lab.nova import compute
from lab.nova import server as servers

WAYS = (volumes.ByNova, volumes.ByDriver)
CHAPTERS = {volumes.ByDriver: by_driver.Chapter}


def run(lab, report, wanted):
    """Run the chapters; leave nothing in the lab, even after an error.

    :param wanted: returns whether a type of encryption is wanted, by its name
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
    """Start all services, and delete servers, snapshots and volumes."""
    volumes.key_manager(lab, True)
    for node in lab.nodes.values():
        _start(lab, node)
        chapter.drop_stolen(node)
    lab.wait_for_services()
    compute.wait(lab)
    servers.clear(lab)


def _start(lab, node):
    if not node.is_on:
        node.power_on()
        node.operator('node', 'restore')
    if not node.serves:
        node.service('start')
    if not compute.is_running(node):
        compute.service(node, 'start')
