# SPDX-License-Identifier: Apache-2.0
"""Every operation in every situation, each proven by content.

Arrows point down this list::

    __main__         the command
    run              situation by situation, on the nodes
    results          verdicts: kept, shown
    catalogue        all operations
    connecting       attach, live migration, detach
    groups           groups, and their snapshots
    capturing        snapshots, volumes that are made of an image
    leaving          migration, retype, managing, deletion, owners
    reading          backups, images
    growing          extend
    operation        what they have in common
    situations       how a volume comes into a situation, and out of it
    environment      the lab, and what is looked at there
    subject          one volume: what it has to contain
    stale, stale_scheduler
                     requests go to a volume's former home
    plan             which cells share a volume. Pure
    table            what there is, and what is expected. Pure

``table.txt`` is the only list: of this suite and of the documentation.
"""
