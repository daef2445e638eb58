# SPDX-License-Identifier: Apache-2.0
"""Volume types that are encrypted, by Nova or by the driver."""

#: What Cinder keeps of a type by which Nova encrypts, with QEMU. Keys of 512
#: bits, which AES-256 has in this mode, Barbican's own store does not order.
FRONT_END = {'provider': 'luks', 'cipher': 'aes-xts-plain64',
             'key_size': 256, 'control_location': 'front-end'}


def make(lab, name, encryption=None, specs=None) -> str:
    """Make a volume type of the driver's; its id.

    :param encryption: other values of Cinder's own than usual; None: none
    :param specs: extra specs, besides the name of the backend
    """
    cinder = lab.cinder()
    made = cinder.post('/types', json={'volume_type': {
        'name': name, 'extra_specs': dict(
            {'volume_backend_name': 'localclone'}, **(specs or {})),
    }}).raise_for_status().json()['volume_type']['id']
    if encryption is not None:
        cinder.post('/types/%s/encryption' % made, json={
            'encryption': dict(FRONT_END, **encryption),
        }).raise_for_status()
    return made


def remove(lab, type_id) -> None:
    """Delete a volume type that no volume has."""
    lab.cinder().delete('/types/' + type_id).raise_for_status()
