# SPDX-License-Identifier: Apache-2.0
"""Secrets, as a user of the cloud sees them."""

import base64
import urllib.parse

from lab.core import config


class Secrets:
    """What the key manager does for one user.

    :param user: as :meth:`lab.lab.Lab.cinder` has them
    """

    def __init__(self, lab, user):
        self.client = lab.client('barbican', user)

    def create(self, name, payload):
        """Keep some bytes; the reference of the secret."""
        return self.client.post('/secrets', json={
            'name': name, 'secret_type': 'symmetric', 'algorithm': 'aes',
            'bit_length': 8 * len(payload),
            'payload': base64.b64encode(payload).decode(),
            'payload_content_type': 'application/octet-stream',
            'payload_content_encoding': 'base64',
        }).raise_for_status().json()['secret_ref']

    def read(self, reference):
        """Read what is kept; status and bytes."""
        return self.client.request_bytes(
            'GET', _path(reference) + '/payload',
            {'Accept': 'application/octet-stream'})

    def delete(self, reference) -> int:
        """Delete a secret; the status of the answer."""
        return self.client.delete(_path(reference)).status_code

    def named(self, name):
        """The references of the user's own secrets of this name."""
        return [each['secret_ref'] for each in self.client.get(
            '/secrets?limit=100&name=' + urllib.parse.quote(name)
        ).json()['secrets']]


def _path(reference):
    return reference.removeprefix(config.url('barbican') + '/v1')
