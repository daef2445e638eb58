# SPDX-License-Identifier: Apache-2.0
"""A volume that moves, as rows: what its home exports."""

from cinder_localclone.core import state

A, B, E = 'a@l', 'b@l', 'e@l'
V = '00000001-0000-4000-8000-000000000000'
S = '00000002-0000-4000-8000-000000000000'


def moving(phase, committed, source=B, destination=E):
    token = state.Token(phase, 'n', state.Geometry(128, 32, 8))
    return state.Move(
        V, S, token, committed, source, destination, 'volume-' + V,
        'volume-' + S, 1, location='192.0.2.1:3260,1 iqn.x:localclone-%s 0'
        % S, auth='CHAP u p', initiator='iqn.e')
