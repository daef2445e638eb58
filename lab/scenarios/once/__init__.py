# SPDX-License-Identifier: Apache-2.0
"""What a user asks of a volume in a situation that lasts, once.

Used by the table of operations, which compares the verdict: ``connecting``
(attach, live migration, detach), ``capturing`` (snapshots, volumes that are
made of an image), ``groups``, ``growing``, ``reading`` (backups, images),
``leaving`` (migration, retype, managing, deletion, owners).
"""

from lab.scenarios.once import capturing
from lab.scenarios.once import connecting
from lab.scenarios.once import groups
from lab.scenarios.once import growing
from lab.scenarios.once import leaving
from lab.scenarios.once import reading

#: By the names that ``lab/operations/table.txt`` has.
OPERATIONS = {each.name: each for module in (
    connecting, capturing, groups, growing, reading, leaving)
    for each in module.OPERATIONS}
