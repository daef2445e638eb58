# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: an operation, a fault at one step, then the checks.

Arrows point down this list::

    __main__         the command
    thrasher         random faults, by a seed
    matrix           labs that take batches of cells from one queue
    work             that queue, and how fast it goes
    results          verdicts: kept, shown, summed up
    plan             which cells there are, and which run together
    whole_operation  one cell with a fault across the whole operation
    network_faults, target_faults, initiator_faults, service_faults,
    disk_faults, boot_faults, migration_faults, lone_home, data_loss,
    encryption_faults, key_faults
                     such faults
    scenario         one volume under such a fault
    discovery        which steps an operation has
    gone             one batch at whose steps a node goes and never comes back
    cells            one batch: an operation stopped at a step, a fault,
                     checks
    reach            an operation on its way to its step
    environment      the lab: brought up, broken, repaired
    injectors        what can be broken in a node, and how that is undone

The operations, their volumes and what is checked are those of
``lab/scenarios``. In a node runs ``stepping`` (a volume service that can be
stopped at each step; ``scaling`` makes volumes small). ``answers``, in these
services and in cinder-api (``api``), has nobody wait for the dead.
"""
