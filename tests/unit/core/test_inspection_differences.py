# SPDX-License-Identifier: Apache-2.0
"""Differences between a volume and what a node has of it."""

import dataclasses

import ddt
import testtools

from cinder_localclone.core import inspection
from cinder_localclone.core import names
from cinder_localclone.core import state
from cinder_localclone.core.state import Phase
from tests.helpers.node_rows import A
from tests.helpers.node_rows import B
from tests.helpers.node_rows import moving
from tests.helpers.node_rows import SHADOW
from tests.helpers.node_rows import standing
from tests.helpers.node_rows import V1

ON_CLONE = 'clone ' + names.clone(SHADOW)
META = names.metadata_lv(SHADOW)
CLONE = {'mode': 'rw', 'enabled': True}
MIGRATING = moving(Phase.MIGRATING)
OLD, NEW = 'volume-' + V1, 'volume-' + SHADOW
DIFFERENCES = (
    # what, found, move, words that must be in the one difference
    ('destination', standing(
        B, ON_CLONE, [NEW, META], CLONE, session='/dev/sda'),
     MIGRATING, None),
    ('destination that waits for its turn', standing(
        B, ON_CLONE, [NEW, META], dict(CLONE, enabled=False),
        session='/dev/sda', progress={'position': 2}), MIGRATING, None),
    ('destination that copies before its turn', standing(
        B, ON_CLONE, [NEW, META], CLONE, session='/dev/sda',
        progress={'position': 2}), MIGRATING, 'is copying'),
    ('destination that does not copy in its turn', standing(
        B, ON_CLONE, [NEW, META], dict(CLONE, enabled=False),
        session='/dev/sda', progress={'position': 0}), MIGRATING,
     'not copying'),
    ('destination on the LV', standing(
        B, 'LV ' + NEW, [NEW, META], CLONE, session='/dev/sda'),
     MIGRATING, 'not on the clone'),
    ('no clone', standing(B, ON_CLONE, [NEW, META], session='/dev/sda'),
     MIGRATING, 'clone is missing'),
    ('failed clone', standing(
        B, ON_CLONE, [NEW, META], dict(CLONE, mode='Fail'),
        session='/dev/sda'),
     MIGRATING, 'mode Fail'),
    ('copying too early', standing(
        B, ON_CLONE, [NEW, META], CLONE, session='/dev/sda'),
     moving(Phase.STARTING), 'the clone is copying'),
    ('not copying', standing(
        B, ON_CLONE, [NEW, META], dict(CLONE, enabled=False),
        session='/dev/sda'),
     MIGRATING, 'not copying'),
    ('no session', standing(B, ON_CLONE, [NEW, META], CLONE), MIGRATING,
     'no session'),
    ('no metadata', standing(B, ON_CLONE, [NEW], CLONE, session='/dev/sda'),
     MIGRATING, 'metadata LV is missing'),
    ('no LV', standing(B, ON_CLONE, [META], CLONE, session='/dev/sda'),
     MIGRATING, 'LV %s is missing' % NEW),
    ('cut over', standing(B, 'LV ' + NEW, [NEW]),
     moving(Phase.COMPLETING), None),
    ('not cut over', standing(B, ON_CLONE, [NEW]), moving(Phase.RELEASING),
     'not on the LV'),
    ('source', standing(A, None, [OLD], exported=True), MIGRATING, None),
    ('source, not exported', standing(A, None, [OLD]), MIGRATING,
     'not exported'),
    ('source without its device', standing(A, None, [OLD], source=None),
     MIGRATING, 'not exported'),
    ('source with a handle', standing(A, 'LV ' + OLD, [OLD], exported=True),
     MIGRATING, 'still on the LV'),
    ('source that uses the volume again',
     standing(A, '8:16', [OLD], exported=True, remote=True), MIGRATING, None),
    ('source with a handle of another kind',
     standing(A, '8:16', [OLD], exported=True), MIGRATING,
     'although the volume is not on'),
    ('source of a live move', standing(A, 'LV ' + OLD, [OLD], exported=True),
     moving(Phase.STARTING), None),
    ('source of a live move without handle',
     standing(A, None, [OLD], exported=True), moving(Phase.STARTING),
     'on nothing'),
    ('source of what is not committed',
     standing(A, 'LV ' + OLD, [OLD], source=None),
     moving(Phase.MIGRATING, False), None),
    ('source of what is not committed, without handle',
     standing(A, None, [OLD], source=None),
     moving(Phase.MIGRATING, False), 'on nothing'),
    ('source without LV', standing(A, exported=True), MIGRATING,
     'LV %s is missing' % OLD),
    ('source not removed', standing(A, None, [OLD]),
     moving(Phase.RELEASING), 'an ended move has left'),
    ('passed through', standing('c@l', '8:16', remote=True), None, None),
    ('a handle for no reason', standing('c@l', '8:16'), None,
     'although the volume is not on'),
    ('not swapped yet', standing(
        B, '8:16', [NEW, META], CLONE, session='/dev/sda', remote=True),
     MIGRATING, 'still attached remotely'),
    ('source of what follows', standing(
        A, 'LV ' + OLD, [OLD], exported=True) | {'exported': True},
     dataclasses.replace(MIGRATING, asked_by=state.Asked.DEFERRED), None),
    ('source that serves nobody', standing(
        A, 'LV ' + OLD, [OLD], exported=True),
     dataclasses.replace(MIGRATING, asked_by=state.Asked.DEFERRED),
     'still on the LV'),
    ('at home', standing(A, 'LV x', ['x']), None, None),
    ('at home, no handle', standing(A, None, ['x']), None, 'on nothing'),
    ('at home, no LV', standing(A, None), None, 'LV x is missing'),
    ('suspended', standing(A, None, ['x'], handle={
        'on': ['LV x'], 'opened': 1, 'suspended': True}), None, 'suspended'),
    ('elsewhere', standing('c@l'), None, None),
    ('stray handle', standing('c@l', 'LV y'), None, 'not on this node'),
)


@ddt.ddt
class DifferencesTest(testtools.TestCase):

    @ddt.data(*DIFFERENCES)
    @ddt.unpack
    def test_differences(self, _what, found, move, words):
        if move and move.is_over:
            wrong = inspection.differences(found, None, B, NEW, [move])
        else:
            wrong = inspection.differences(found, move, A, 'x')
        if words is None:
            self.assertEqual([], wrong)
        else:
            self.assertEqual(1, len(wrong), wrong)
            self.assertIn(words, wrong[0])
