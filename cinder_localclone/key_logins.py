# SPDX-License-Identifier: Apache-2.0
"""One login to the key manager, for as long as it is taken.

castellan logs in to Keystone for each call, which takes about a second; a
call by itself takes a tenth of that. So the client that it has made for this
service's own credentials is used again. That gets a new token by itself
before the old one ends, and when one is refused (keystoneauth's sessions do).

An owner's request has credentials of its own, and a client of its own: what
one owner may read, another one must not.
"""

from collections.abc import Callable
import typing

#: How castellan's Barbican gets a client. Other key managers keep their own.
_MAKES = '_get_barbican_client'


class Login:
    """A key manager of castellan's, and who this service is to it.

    Several threads may use it at once: each makes a client if there is none,
    and the last one stays.

    :param manager: as castellan has made it, for nobody else
    :param credentials: makes this service's, when they are needed: an
        owner's secret is read without
    """

    def __init__(self, manager: typing.Any,
                 credentials: Callable[[], typing.Any]):
        self.manager = manager
        self._make_credentials = credentials
        self._credentials: typing.Any = None
        self._client: typing.Any = None
        self._make: Callable[[typing.Any], typing.Any] | None = getattr(
            manager, _MAKES, None)
        if self._make is not None:
            setattr(manager, _MAKES, self.client)

    @property
    def credentials(self) -> typing.Any:
        """This service's, always the same."""
        if self._credentials is None:
            self._credentials = self._make_credentials()
        return self._credentials

    def client(self, whose: typing.Any) -> typing.Any:
        """Barbican's client for some credentials."""
        make = typing.cast(Callable[[typing.Any], typing.Any], self._make)
        if whose is not self._credentials:
            return make(whose)
        client = self._client
        if client is None:
            client = self._client = make(whose)
        return client
