# SPDX-License-Identifier: Apache-2.0
"""Barbican's configuration file, as text. Pure."""

import base64

from lab.core import config

#: By which Barbican encrypts what it keeps in its database.
_KEK = base64.urlsafe_b64encode(config.PASSWORD.encode().ljust(32)).decode()


def barbican() -> str:
    """For its API, which makes keys by itself, without a worker."""
    return config.ini({
        'DEFAULT': {'host_href': config.url('barbican'),
                    'use_stderr': 'true'},
        'database': {'connection': config.database('barbican'),
                     'max_pool_size': 5},
        'keystone_authtoken': config.authtoken('barbican'),
        'secretstore': {'enabled_secretstore_plugins': 'store_crypto'},
        'crypto': {'enabled_crypto_plugins': 'simple_crypto'},
        'simple_crypto_plugin': {'kek': _KEK},
        'queue': {'enable': 'false'},
    })
