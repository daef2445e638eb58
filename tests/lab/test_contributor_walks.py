# SPDX-License-Identifier: Apache-2.0
"""The numbered functions of the contributor's page run in its order."""

import dataclasses
import datetime
import logging
import sys
import time
import types
from unittest import mock

import testtools

from cinder_localclone.core.interfaces import records
from cinder_localclone.driver import driver
from cinder_localclone.service import assembly
from tests.helpers import pages
from tests import world as worlds
from tests.world import images

A, B = 'a@l', 'b@l'
PACKAGE = 'cinder_localclone.'


def entered(act):
    """The functions of the package that an action enters, in order."""
    found = []

    def note(frame, event, _argument):
        module = frame.f_globals.get('__name__', '')
        if event == 'call' and module.startswith(PACKAGE):
            found.append('%s.%s' % (module.removeprefix(PACKAGE),
                                    frame.f_code.co_qualname))
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


def first_missing(names, found):
    """The first of some names that does not come in its order; or None."""
    rest = iter(found)
    for name in names:
        if not any(each in (name, name + '.execute') for each in rest):
            return name


class WalksTest(testtools.TestCase):

    def setUp(self):
        super().setUp()
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.world = worlds.World()
        self.volume = self.world.create_volume(A)
        self.sequences = pages.sequences()

    def service(self, host):
        sim = self.world.nodes[host]
        interrupted = mock.create_autospec(records.Interrupted, instance=True)
        interrupted.now.return_value = datetime.datetime(2026, 11, 28)
        interrupted.volumes_unchanged_since.return_value = []
        interrupted.lost_deletes.return_value = []
        return types.SimpleNamespace(
            node=dataclasses.replace(sim.node, interrupted=interrupted),
            reconciler=sim.reconciler,
            connections=sim.connections, started=time.monotonic() - 3600)

    def attach(self):
        """An instance on the second node attaches, and all is copied."""
        volume, source, destination = (
            self.volume, self.world.nodes[A], self.world.nodes[B])
        volume.status, volume._context = 'attaching', None
        volume.volume_attachment = [images.attachment(
            id='1', instance_uuid='i', connector=None, connection_info=None,
            attach_status='attaching')]
        asked = driver.LocalCloneDriver.__new__(driver.LocalCloneDriver)
        asked.service = self.service(A)
        asked.initialize_connection(
            volume, {'host': 'b', 'initiator': 'iqn.b'})
        destination.reconciler.reconcile(volume.id)
        destination.hydrate()
        destination.reconciler.reconcile(volume.id)
        source.reconciler.reconcile(volume.id)

    def test_attach(self):
        found = entered(self.attach)
        self.assertIsNone(first_missing(
            self.sequences['An attach on another node'], found))
        self.assertEqual({}, self.world.move_records)

    def test_sweep(self):
        self.world.nodes[A].devices.clear()  # a difference
        found = entered(lambda: assembly.sweep(self.service(A)))
        self.assertIsNone(first_missing(
            self.sequences['A periodic sweep'], found))

    def test_order_counts(self):
        self.assertEqual('b', first_missing('ab', 'ba'))
        self.assertIsNone(first_missing('ab', 'cab'))
