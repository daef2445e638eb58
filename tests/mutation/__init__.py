# SPDX-License-Identifier: Apache-2.0
"""Mutation testing of the data path: would a test notice if a line changed?

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
    'moves/*.py', 'reconcile.py', 'copying.py', 'hydration.py', 'thin_map.py',
    'queue.py', 'records.py',
    'queue_records.py', 'operator_records.py', 'stack.py', 'handles.py',
    'logical_volumes.py', 'export.py', 'sessions.py', 'state.py',
    'decision.py', 'served.py', 'connections.py', 'handlers.py', 'deletion.py',
    'extending.py', 'operations.py', 'forgetting.py', 'repair.py', 'survey.py',
    'restore.py', 'snapshots.py', 'births.py', 'reverting.py',
    'creation.py', 'newborns.py', 'front_end.py',
    'snapshot_records.py', 'images.py', 'rows.py', 'copies.py', 'migration.py',
    'migration_records.py', 'draining.py', 'adoption.py', 'manageable.py',
    'managing.py', 'managing_snapshots.py', 'passing.py',
    'attachment_records.py', 'privileged/[a-z]*.py', 'dm/[a-z]*.py',
    'pace.py', 'wake.py', 'glance.py', 'serving.py', 'status_records.py',
    'names.py', 'driver.py', 'image_driver.py', 'peer.py',
    # Who may read a volume, and whether anybody can.
    'encryption.py', 'key_change.py', 'own_key.py', 'recovery_keys.py',
    'header_care.py', 'header_backups.py', 'headers_at_rest.py',
    'reencryption.py', 'reencryption_plan.py', 'opening.py', 'unlocking.py',
    'secret_care.py', 'secret_records.py', 'luks/[a-z]*.py', 'header_files.py',
    'tops.py', 'crypt_tops.py', 'decrypting.py', 'pausing.py', 'cryptsetup.py',
    'keys.py', 'kept_keys.py', 'pins.py', 'pinning.py')

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
