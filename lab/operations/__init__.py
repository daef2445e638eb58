# SPDX-License-Identifier: Apache-2.0
"""Every operation in every situation, proven by the volume's content.

Arrows point down this list::

    __main__         the command
    run              situation by situation, on the nodes
    results          verdicts: kept, shown
    situations       how a volume comes into a situation, and out of it
    environment      the lab, and what is looked at there
    stale, stale_scheduler
                     requests go to a volume's former home
    plan             which cells share a volume. Pure
    table            what there is, and what is expected. Pure

The operations are those of ``lab/scenarios/once``. ``table.txt`` is the only
list: of this suite and of the documentation.
"""
