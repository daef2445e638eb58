# SPDX-License-Identifier: Apache-2.0
"""Find the volume service of a host by the host's name. Pure.

The same host may be "n1" for Nova and "n1.example.org" for Cinder.
"""

import collections
from collections.abc import Iterable


class Names:
    """An index of service hosts by the names of their hosts.

    :param hosts: service hosts: "n1", or with a backend, "n1@localclone"
    """

    def __init__(self, hosts: Iterable[str]):
        self._full: dict[str, list[str]] = collections.defaultdict(list)
        self._short: dict[str, list[str]] = collections.defaultdict(list)
        for host in hosts:
            name = host.partition('@')[0]
            self._full[name].append(host)
            self._short[name.split('.')[0]].append(host)

    def match(self, name: str) -> str | None:
        """Return the service host of the host with a name.

        An equal name is preferred. Else a name without a domain matches a name
        with a domain: "n1" matches "n1.rack1". "n1.rack1" and "n1.rack2" do
        not match.

        :returns: None if no service host matches, or several do
        """
        if not name:
            return None
        near = [host for host in self._short.get(name.split('.')[0], ())
                if ('.' in host.partition('@')[0]) != ('.' in name)]
        for found in (self._full.get(name, ()), near):
            if len(found) == 1:
                return found[0]
        return None
