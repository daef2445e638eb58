# SPDX-License-Identifier: Apache-2.0
"""Notes of ``cinder-localclone doctor``: encryption of iSCSI between nodes.

As in :mod:`.checks`, each function judges its arguments only. The network may
be trusted, so clear text is no failure.
"""

from collections.abc import Iterable
import dataclasses
import ipaddress

from cinder_localclone.cmd.doctor.checks import Finding
from cinder_localclone.cmd.doctor.checks import OK
from cinder_localclone.cmd.doctor.checks import WARN
from cinder_localclone.cmd.doctor import packages

#: The port of iSCSI, Cinder's default of target_port.
PORT = 3260
_TCP = ('tcp', '6')


@dataclasses.dataclass(frozen=True)
class Flow:
    """Packets of TCP in one direction.

    :param direction: in or out, as seen by this node
    :param source_port: None: any port
    """

    direction: str
    source: str
    destination: str
    source_port: int | None = None
    destination_port: int | None = None


@dataclasses.dataclass(frozen=True)
class Policy:
    """An IPsec policy of the kernel.

    :param selector: the fields of its selector, as ip(8) names them
    :param priority: the policy with the lowest number decides
    :param verdict: one of ENCRYPTED, BLOCKED and CLEAR
    """

    direction: str
    selector: dict[str, str]
    priority: int
    verdict: str

    def matches(self, flow: Flow) -> bool:
        """Return whether the policy applies to packets of a flow."""
        return (
            self.direction == flow.direction
            and _is_in(flow.source, self.selector['src'])
            and _is_in(flow.destination, self.selector['dst'])
            and self.selector.get('proto', 'tcp') in _TCP
            and self.selector.get('sport') in (None, str(flow.source_port))
            and self.selector.get('dport') in (
                None, str(flow.destination_port)))


ENCRYPTED, BLOCKED, CLEAR = 'encrypted', 'blocked', 'clear'


def _is_in(address: str, network: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(
        network, strict=False)


def parse(text: str) -> list[Policy]:
    """Return the policies for packets of iSCSI.

    Policies for marked packets are left out. A policy of a single socket has
    no direction.

    :param text: the output of ``ip xfrm policy``
    :raises ValueError: if it has another form
    """
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if line and not line[0].isspace():
            blocks.append([line])
        elif line.strip():
            blocks[-1].append(line)
    found = []
    for first, *others in blocks:
        words, selector = ' '.join(others).split(), first.split()
        if 'mark' in words or _after(words, 'ptype') == 'sub':
            continue
        found.append(Policy(
            _after(words, 'dir'), dict(zip(selector[::2], selector[1::2])),
            int(_after(words, 'priority') or 0), _verdict(words)))
    return found


def _after(words: list[str], word: str) -> str:
    return words[words.index(word) + 1] if word in words[:-1] else ''


def _verdict(words: list[str]) -> str:
    if _after(words, 'action') == 'block':
        return BLOCKED
    # A template with "level use" lets packets pass that are not encrypted.
    return ENCRYPTED if 'proto esp' in ' '.join(words) and (
        _after(words, 'level') != 'use') else CLEAR


def flows(own: str, source: str, peer: str, port: int = PORT) -> list[Flow]:
    """Return the flows between the portals and initiators of two nodes.

    :param own: the address of this node's portal
    :param source: the address from which this node connects to the peer
    :param peer: the address of the peer's portal
    :param port: of both portals
    """
    return [
        Flow('out', source, peer, destination_port=port),
        Flow('in', peer, source, source_port=port),
        Flow('in', peer, own, destination_port=port),
        Flow('out', own, peer, source_port=port)]


def _decided(flow: Flow, policies: Iterable[Policy]) -> str:
    matching = [each for each in policies if each.matches(flow)]
    return min(matching, key=lambda each: each.priority).verdict if (
        matching) else CLEAR


def ipsec(host: str, between: Iterable[Flow], policies: Iterable[Policy],
          how: str = '') -> Finding:
    """Report whether IPsec policies cover all flows between two nodes.

    :param host: the peer
    :param how: see :func:`.packages.family`
    """
    known = list(policies)
    verdicts = {_decided(flow, known) for flow in between}
    check = 'link to ' + host
    if BLOCKED in verdicts:
        return Finding(
            check, WARN, 'IPsec policies block iSCSI: no volume can move',
            'systemctl restart strongswan; swanctl --list-conns')
    if verdicts == {ENCRYPTED}:
        return Finding(check, OK, 'IPsec encrypts iSCSI')
    return Finding(
        check, OK, 'iSCSI is clear text' + (
            ' in one direction' if ENCRYPTED in verdicts else ''),
        'on an untrusted network: %s; configure IPsec (see "The link" in the '
        'installation guide)' % packages.install(['swanctl'], how))


def wireguard(host: str, device: str) -> Finding:
    """Report a link through WireGuard.

    :param host: the peer
    :param device: the network device of the route
    """
    return Finding('link to ' + host, OK,
                   'WireGuard (%s) encrypts iSCSI' % device)


def unknown(host: str, reason: str) -> Finding:
    """Report a link whose encryption is not known."""
    return Finding('link to ' + host, OK,
                   'it is not known whether iSCSI is encrypted: ' + reason)
