# SPDX-License-Identifier: Apache-2.0
"""Extra specs of volume types, for ``volume backend capability show``.

Cinder calls them vendor capabilities; Horizon lists them as well. Pure.
:mod:`.volume_types` reads and checks them.
"""

import typing

from cinder.i18n import _

from cinder_localclone.core import copies
from cinder_localclone.core import volume_types


class ExtraSpec(typing.NamedTuple):
    """An extra spec, in the terms of Cinder's ``_set_property``.

    :param type: of JSON schema
    :param limits: ``enum`` and ``default``, if any
    """

    title: str
    description: str
    type: str
    limits: dict[str, typing.Any] = {}


_DEFAULT = volume_types.Encryption()
_BITS = sorted({bits for cipher in volume_types.CIPHERS.values()
                for bits in cipher.key_bits})
_INTEGRITY = sorted({each for cipher in volume_types.CIPHERS.values()
                     for each in cipher.integrity})

#: By name, without prefix. Defaults depending on the cipher are left out.
EXTRA_SPECS = {
    'encryption': ExtraSpec(
        'Encryption', _('Encryption by the driver. All other properties '
                        'except pace need it.'),
        'string', {'enum': [volume_types.LUKS2]}),
    'cipher': ExtraSpec(
        'Cipher', _('Cipher of an encrypted volume.'), 'string',
        {'enum': list(volume_types.CIPHERS), 'default': _DEFAULT.cipher}),
    'key_size': ExtraSpec(
        'Key size', _('Size of the data key in bits. Default: the largest of '
                      'the cipher.'), 'integer', {'enum': _BITS}),
    'sector_size': ExtraSpec(
        'Sector size', _('Bytes of an encryption sector.'), 'integer',
        {'enum': list(volume_types.SECTOR_SIZES),
         'default': _DEFAULT.sector_size}),
    'integrity': ExtraSpec(
        'Integrity', _('Authentication of each sector; experimental. Needs '
                       'moves=cold and localclone_enable_integrity on the '
                       'nodes.'), 'string', {'enum': _INTEGRITY}),
    'moves': ExtraSpec(
        'Moves', _('Whether a volume moves with a running instance (live), '
                   'or only while it is detached (cold).'), 'string',
        {'enum': list(volume_types.MOVES), 'default': 'live'}),
    'discards': ExtraSpec(
        'Discards', _('Whether discards of the guest reach the disk. The '
                      'disk then shows the ranges in use.'), 'boolean',
        {'default': _DEFAULT.discards}),
    'zeroed': ExtraSpec(
        'Zeroed', _('Whether a new volume is overwritten. Its unwritten '
                    'ranges then read as zeros.'), 'boolean',
        {'default': _DEFAULT.zeroed}),
    'key': ExtraSpec(
        'Key', _('"volume": a secret for each volume; "type:REFERENCE": a '
                 'secret of the key manager for all volumes of the type.'),
        'string', {'default': 'volume'}),
    'key_format': ExtraSpec(
        'Key format', _('How the secret contains the key.'), 'string',
        {'enum': [each.value for each in volume_types.KeyFormat],
         'default': _DEFAULT.key_format.value}),
    'pace': ExtraSpec(
        'Pace of copies', _('Speed of a copy beside the guest. Default: '
                            'localclone_pace of the node.'), 'string',
        {'enum': [each.value for each in copies.Pace]}),
}
