# SPDX-License-Identifier: Apache-2.0
"""The move of a volume, as TaskFlow flows.

:mod:`.source`
    Check, record the intent, offer the source, have the peer prepare,
    commit. Nothing is touched before the checks; commit is the last step
    that can fail; a failure before it records that the move has failed, and
    both sides remove what they have (:mod:`.reconcile` does
    the same after a crash).
:mod:`.destination`
    Build the stack over the offered source. The same flow builds it the
    first time and rebuilds it after a power cut; only the first time may it
    create anything. And the way back, before anything was written there.
:mod:`.completion`
    When everything is local: cut over to the LV, then remove the clone.
:mod:`.cleanup`
    When the move is over: remove the source, or what a move that failed has
    at its destination.

Shared by these: :mod:`.cleanup`, :mod:`.checks` and :mod:`.flow`.
"""
