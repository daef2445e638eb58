# SPDX-License-Identifier: Apache-2.0
"""All operations, by the names that ``table.txt`` has."""

from lab.operations import capturing
from lab.operations import connecting
from lab.operations import groups
from lab.operations import growing
from lab.operations import leaving
from lab.operations import reading

OPERATIONS = {each.name: each for room in (
    connecting, capturing, groups, growing, reading, leaving)
    for each in room.OPERATIONS}
