# SPDX-License-Identifier: Apache-2.0
"""The records on Cinder's own schema, in its SQLite fixture."""

import warnings

from cinder import context
from cinder.tests.unit import utils

from cinder_localclone.core import state
from cinder_localclone.core.state import Event
from cinder_localclone.db import attachments
from cinder_localclone.db import base
from cinder_localclone.db import database as db
from tests.helpers import database

GEOMETRY = state.Geometry(128, 32, 8)
A, B = 'a@l', 'b@l'
#: Credentials of each move's export.
AUTH = 'CHAP u s'


def use(case):
    """Give a test case the classes of the database, each by its subject."""
    case.db = db.database()
    vars(case).update(vars(case.db))
    case.attachments = attachments.Attachments(
        lambda connector, host: host.startswith(connector['host'] + '@'))


class Base(database.TestCase):

    def setUp(self):
        super().setUp()
        # Cinder's own deprecations, which its fixture shows.
        warnings.simplefilter('ignore', DeprecationWarning)
        self.context = context.get_admin_context()
        use(self)
        self.volume = utils.create_volume(
            self.context, host=A + '#p', size=1, status='in-use',
            volume_type_id=None)

    def begin(self, event=Event.LIVE_MOVE_BEGUN, host=B):
        return self.moves.begin(
            self.volumes.volume(self.volume.id), host + '#p', event, GEOMETRY,
            lambda record: 'portal,1 iqn:%s 0' % record, AUTH, 'i')

    def reload(self):
        """Cinder's object of the volume, as its row is now."""
        return base.cinder_volume(self.volume.id)

    def drain(self, move):
        for event in (Event.SOURCE_DETACHED, Event.HYDRATED, Event.DRAINED):
            move = self.moves.advance(move, event)
        return move
