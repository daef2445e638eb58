# SPDX-License-Identifier: Apache-2.0
"""Requests for volumes on real nodes, each with the proof of its result.

The matrix of faults (``lab/faults``) breaks something meanwhile; the table of
operations (``lab/operations``) asks in each situation. Demos and functional
tests use parts of it. Arrows point down this list::

    repeated      operations that are asked for until they are done
    once          operations that are asked for once: they work, wait or are
                  refused
    operation     what both have
    snapshot      a snapshot with what it must have, volumes that are made of
                  images
    checks        what must be on the nodes, row by row of the database
    environment   the lab: volumes are made in it, everything is healed
    encrypted_disk
                  a volume that the driver encrypts
    disk          a volume under test: its known data, its guest, its proof
    requests      one request about a volume: sent, done, sent again
    owners        whose work an effect is

In a node runs ``payload`` (known data, written and verified).
"""
