# SPDX-License-Identifier: Apache-2.0
"""A key manager behind castellan that answers, refuses, or does neither."""

import logging
import threading
from unittest import mock

from castellan.common import exception as castellan_exception
from castellan.common.objects import opaque_data


class Answer(Exception):
    """As barbicanclient's, and keystoneauth's."""

    def __init__(self, status, attribute='status_code'):
        super().__init__('it has said %s' % status)
        setattr(self, attribute, status)


class Manager:
    """As much of castellan's key managers as is used."""

    def __init__(self):
        self.kept, self.used, self.error = {}, [], None
        self.wait = threading.Event()
        self.wait.set()
        self.answers = 0

    def _answer(self, whose):
        self.wait.wait(30)
        self.answers += 1
        logging.getLogger('keystoneauth.session').debug('has the secret')
        logging.getLogger('keystoneauth.session').warning('is slow')
        assert whose is not None
        if isinstance(self.error, Answer):
            try:
                raise self.error
            except Answer as exc:
                raise castellan_exception.KeyManagerError(reason=exc)
        if self.error:
            raise self.error

    def store(self, whose, secret):
        self._answer(whose)
        key = '%08d-0000-4000-8000-000000000000' % len(self.kept)
        self.kept[key] = secret
        return key

    def get(self, whose, key, metadata_only=False):
        self._answer(whose)
        if key not in self.kept:
            raise castellan_exception.ManagedObjectNotFoundError(uuid=key)
        return self.kept[key]

    def delete(self, whose, key):
        self.get(whose, key)
        del self.kept[key]

    def list(self, whose, object_type=None, metadata_only=False):
        self._answer(whose)
        return [mock.Mock(id=key, **{'name': None})
                if secret is None else _metadata(key, secret)
                for key, secret in self.kept.items()]

    def add_consumer(self, whose, key, consumer):
        self.get(whose, key)
        self.used.append((key, consumer))

    def remove_consumer(self, whose, key, consumer):
        self.get(whose, key)
        self.used.remove((key, consumer))


def _metadata(key, secret):
    return opaque_data.OpaqueData(None, name=secret.name, id=key)
