# SPDX-License-Identifier: Apache-2.0
"""Rows and LVs of a node, for what an operator is told of it."""

from cinder_localclone.core.formats import lvm_reports
from cinder_localclone.core import names
from cinder_localclone.core import state

GIB = 1 << 30
GEOMETRY = state.Geometry(128, 32, 8)
V1, V2, SHADOW = ('%08d-0000-4000-8000-000000000000' % n for n in (1, 2, 3))
A, B = 'a@l', 'b@l'


def lv(name, *tags):
    return lvm_reports.LogicalVolume('g', name, GIB, '', frozenset(tags))


def metadata(*tags):
    return lv(names.metadata_lv(SHADOW), *tags)


def moving(phase, committed=True):
    return state.Move(
        V1, SHADOW, state.Token(phase, 'n', GEOMETRY), committed, A, B,
        'volume-' + V1, 'volume-' + SHADOW, 1)


def standing(host, on=None, lvs=(), clone=None, exported=False, **more):
    found = {'host': host, 'exported': False, 'session': None,
             'source': {'opened': 1, 'exported': exported},
             'lvs': [{'name': name} for name in lvs], 'clone': clone,
             'handle': on and {'on': [on], 'opened': 0, 'suspended': False},
             'progress': None, 'remote': False, 'upper_devices': []}
    found.update(more)
    return found
