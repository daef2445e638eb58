# SPDX-License-Identifier: Apache-2.0
"""Rows and LVs of volumes, as an inventory of a backend has them."""

from cinder_localclone.cmd.metrics import sources
from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from cinder_localclone.db import inventory

A, B, C = 'a@l', 'b@l', 'c@l'
GIB, MIB = 1 << 30, 1 << 20
V1, V2, V3, SHADOW = ('%08d-0000-4000-8000-000000000000' % n
                      for n in (1, 2, 3, 4))
GEOMETRY = state.Geometry(128, 32, 8)


def moving(volume=V1, phase=Phase.MIGRATING, committed=True, source=A,
           destination=B, record=SHADOW):
    return state.Move(
        volume, record, state.Token(phase, 'n', GEOMETRY), committed, source,
        destination, 'volume-' + volume, 'volume-' + record, 1)


def lv(name, *tags, size=GIB, number='253:1', **more):
    return lvm_reports.LogicalVolume('g', name, size, number, frozenset(tags),
                                     **more)


def row(volume, host=B, **more):
    return inventory.Row(**{
        'id': volume, 'display_name': '', 'name': 'volume-' + volume,
        'name_id': volume, 'host': host + '#p', 'size': 2,
        'status': 'available', 'attach_status': 'detached',
        'migration_status': None, 'provider_id': None,
        'encryption_key_id': None, 'volume_type_id': None,
        'group_id': None, 'source_volid': None, 'use_quota': True,
        'availability_zone': None, 'replication_driver_data': None,
        'updated_at': None, 'project_id': None, 'user_id': None, **more})


def database(moves=(), volumes=(), positions=None, **more):
    return sources.Database(
        {A: True, B: False}, [inventory.Under(each, 1000.0)
                              for each in moves],
        0, list(volumes), positions or {}, **more)


def answers(**values):
    return {name: sources.Answer(values.get(name), '' if name in values
                                 else 'away', 0.5)
            for name in ('storage', 'database', 'service', 'doctor')}
