# SPDX-License-Identifier: Apache-2.0
"""From the name of a host to its volume service. Pure."""

import collections
from collections.abc import Iterable


class Names:
    """The hosts of services, by name.

    :param hosts: "n1", or with a backend, "n1@localclone"
    """

    def __init__(self, hosts: Iterable[str]):
        self._full: dict[str, list[str]] = collections.defaultdict(list)
        self._short: dict[str, list[str]] = collections.defaultdict(list)
        for host in hosts:
            name = host.partition('@')[0]
            self._full[name].append(host)
            self._short[name.split('.')[0]].append(host)

    def match(self, name: str) -> str | None:
        """Return the service host on a host; None if none or several match.

        "n1.rack1" is not "n1.rack2", but both may be "n1".
        """
        if not name:
            return None
        near = [host for host in self._short.get(name.split('.')[0], ())
                if ('.' in host.partition('@')[0]) != ('.' in name)]
        for found in (self._full.get(name, ()), near):
            if len(found) == 1:
                return found[0]
        return None
