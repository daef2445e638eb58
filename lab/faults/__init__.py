# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: one operation, one fault at one step, then the promises.

Arrows point down this list::

    __main__    the command
    thrasher    random faults, by a seed
    matrix      rows, columns, verdicts, what is kept
    cross       faults across the whole operation
    network_faults, service_faults, disk_faults
    course      one volume under such a fault
    cells       one batch: an operation stopped at a step, a fault, checks
    operations  what a user asks for, and asks for again
    checks      the promises of the design, as far as a look can tell
    disk        a volume with known data and a guest
    ground      the lab: brought up, broken, mended
    breaks      what can be broken in a node, and how it is mended
    proof       runs in a node: known data, written and proven
"""
