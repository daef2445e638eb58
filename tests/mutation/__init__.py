# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the data path.

``operators``
    What is changed in a piece of code.
``mutants``
    All changes of a module, with names that stay.
``swap``
    One change brought into a running interpreter.
``runs``
    The tests: which of them execute what, and whether one notices.
``__main__``
    ``make mutations``.

Cinder is imported once. Each mutant is a fork of that process in which one
function has other code, and only the tests that execute the changed statement
are run, the quickest first, until one fails.
"""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = 'cinder_localclone'

#: What is mutated: whatever changes a volume, or decides that it is changed.
DATA_PATH = (
    'cmd/node/drain_plan.py', 'cmd/node/forget.py', 'core/attachments.py',
    'core/boot_plan.py', 'core/copies.py', 'core/expected.py',
    'core/header_notes.py', 'core/move_record.py', 'core/names.py',
    'core/pins.py', 'core/pinning.py', 'core/rows.py', 'core/volume.py',
    'core/state.py', 'core/formats/cryptsetup_cli.py',
    'core/formats/dm_clone_metadata.py', 'core/formats/dm_ioctl.py',
    'core/formats/dm_tables.py', 'core/formats/luks_binary.py',
    'core/formats/luks_ending.py', 'core/formats/luks_header.py',
    'core/formats/luks_integrity.py', 'core/formats/survey.py',
    'core/formats/thin_map.py', 'core/rpc.py', 'db/attachments.py',
    'db/base.py', 'db/clock.py', 'db/decommission.py', 'db/interrupted.py',
    'db/inventory.py', 'db/moves.py', 'db/queue.py', 'db/secrets.py',
    'db/services.py', 'db/snapshots.py', 'db/volumes.py',
    'driver/driver.py', 'driver/front_end.py', 'driver/snapshots.py',
    'encryption/[a-z]*.py', 'moves/[a-z]*.py', 'service/endpoint.py',
    'service/key_manager.py', 'service/restore.py',
    'service/rpc.py', 'storage/[a-z]*.py', 'storage/privsep/[a-z]*.py',
    'volumes/clone.py', 'volumes/connect.py', 'volumes/create.py',
    'volumes/decision.py', 'volumes/delete.py', 'volumes/exports.py',
    'volumes/extend.py', 'volumes/homes.py', 'volumes/manage.py',
    'volumes/manage_snapshots.py',
    'volumes/manageable.py', 'volumes/migrate.py', 'volumes/operations.py',
    'volumes/quick_check.py', 'volumes/reconcile.py', 'volumes/repair.py',
    'volumes/revert.py', 'volumes/snapshots.py', 'volumes/uncommitted.py')

#: Mutants that no test can notice, each with the reason.
EQUIVALENT = pathlib.Path(__file__).parent / 'equivalent.yaml'


def modules():
    """The files of the data path, relative to the package.

    :raises LookupError: if there is nothing where it says
    """
    found = []
    for pattern in DATA_PATH:
        paths = sorted((ROOT / PACKAGE).glob(pattern))
        if not paths:
            raise LookupError('the data path has no %s (any more)' % pattern)
        found += [str(path.relative_to(ROOT / PACKAGE)) for path in paths]
    return found
