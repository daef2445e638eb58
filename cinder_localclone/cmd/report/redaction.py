# SPDX-License-Identifier: Apache-2.0
"""Removal of secrets from configuration, tables and logs. Pure.

The value of an option is shown only if the option is known and no secret. The
secrets of all sections, and the passwords in URLs, are removed from every text
wherever they appear. Patterns remove credentials that are in no configuration,
such as the CHAP passwords of exports in a log. Terminal sequences are removed
first: a coloured log may have one between a name and its secret.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import json
import re
import urllib.parse

from oslo_utils import strutils

HIDDEN = '***'
#: Options with a URL, which is shown without its credentials.
_URL_NAMES = ('backend_url', 'connection', 'slave_connection', 'transport_url')
#: Names of options with secrets, whatever their definition says.
_SECRET_NAME = re.compile(
    r'pass(word|wd|phrase|code|_|$)|ps?wd|secret|token|credential|private|'
    r'(^|_)(api|access)?(key|kek)s?$', re.IGNORECASE)
#: Ends of names of options about secrets, such as service_token_roles: their
#: values are common words, which would disappear from all texts.
_ABOUT_SECRETS = re.compile(
    r'_(roles|roles_required|time|timeout|url|uri|file|dir|type|enabled|'
    r'required|version|algorithms|strategy|size|length|lifetime)$')
#: Credentials in URLs. A password may have any character but a space. The
#: bound keeps the search linear in a log with very long words.
_URL = re.compile(r'([A-Za-z][\w+.-]{0,30}://)[^\s\'"<>]*@')
#: A valid URL: scheme, credentials, and the rest.
_PARTS = re.compile(r'([A-Za-z][\w+.-]*://)(?:(.*)@([^@]*)|[^:/?]*(?::\d*)?'
                    r'(?:[/?,].*)?|\[[^]]*\].*)$', re.DOTALL)
#: "CHAP name password", as in Cinder's provider_auth, also as a tuple.
_CHAP = re.compile(
    r'\bCHAP(?:\s+\S+\s+\S+|[\'"],\s?[bu]?([\'"])[^\'"]*\1,'
    r'\s?[bu]?([\'"])(?:(?!\2).)*\2)')
#: "password" of targetcli, of iscsiadm's records and of connection data. In a
#: log in JSON each quotation mark has a backslash, or several. An unescaped
#: value may have escaped marks.
_NAMED = re.compile(
    r'((?:pass(?:word|wd|phrase)|secret|token|incoming_auth|outgoing_auth|'
    r'provider_auth|payload|'
    r'(?:fixed|master|volume|api|access|private)[_-]?key)'
    r'[\w.\'"\]\\]{0,40}\s{0,9}(?:=>|[=:])\s*[bu]?)'
    r'(?:"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\\+"[^"]*"|[^\s,;]+)',
    re.IGNORECASE)
#: The header of an HTTP request: "Basic name-and-password", "Bearer token".
_HEADER = re.compile(
    r'\b(authorization[\'"\\]{0,9}\s{0,9}[:=][\s\'"\\]{0,9}\w+\s+)'
    r'[^\s\'"\\]+', re.IGNORECASE)
#: Credentials without a name in front: tokens of Keystone (Fernet), JSON web
#: tokens, and the values of HTTP's schemes.
_TOKEN = re.compile(
    r'\bgAAAA[\w-]{16,}=*|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+|'
    r'\b(?:Basic|Bearer)\s+(?=[^\s\'"]*[\d=+/])[\w+/=.~-]{8,}')
#: A private key in PEM; its end may be cut off.
_PEM = re.compile(
    r'(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?'
    r'(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)', re.DOTALL)
#: A value in prose: "password 'x'", "passphrase for y is x".
_PROSE = re.compile(
    r'(\b(?:pass(?:word|wd|phrase)|secret|token)(?:\s+\w+){0,3}?\s+)'
    r'(?:[bu]?\'(?:\\.|[^\'\\])+\'|[bu]?"(?:\\.|[^"\\])+")|'
    r'(\bpass(?:word|wd|phrase)(?:\s+\w+){0,3}?\s+is\s+)\S+', re.IGNORECASE)
#: Hexadecimal digits of a key, by its name.
_HEX_KEY = re.compile(
    r'(\bkey[\'"\\]{0,9}\s{0,9}[=:]?[\s\'"\\b]{0,9})[0-9a-f]{32,}\b',
    re.IGNORECASE)
#: The arguments of a privileged call, in a log of privsep.
_CALL = re.compile(r'(privsep: request\[[^\]]*\]: ).*')
#: Sequences of terminals: CSI, and OSC with its end.
_SEQUENCE = re.compile(
    r'\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?')
_CONTROL = re.compile(
    r'[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]')
#: A recovery key, as "encryption recovery key add" prints it.
_RECOVERY_KEY = re.compile(r'\b(?:[A-Z2-7]{4}-){12}[A-Z2-7]{4}\b')
#: Lines worth a closer check: mask_password() takes long.
_SECRET_WORD = re.compile(r'pass|secret|token|auth|key|payload', re.IGNORECASE)
#: Keys in tables of device-mapper: dm-crypt's fifth word, and the third part
#: of dm-integrity's algorithms.
_CRYPT = re.compile(r'(\bcrypt\s+\S+\s+)(?!:)[0-9a-fA-F]{2,}')
_INTEGRITY = re.compile(
    r'\b((?:internal_hash|journal_crypt|journal_mac):[^\s:]+):\S+')
#: Shorter secrets are removed only as whole words.
_SHORT = 6
_SECTION = re.compile(r'\[([^\]]+)\]$')
_OPTION = re.compile(r'([^\s#;=:\[][^=:]*?)\s*[=:]\s*(.*)$')


@dataclasses.dataclass(frozen=True)
class Option:
    """An option in a configuration file."""

    section: str
    name: str
    value: str


def options(text: str) -> Iterator[Option]:
    """Yield the options of a configuration file, even if lines are invalid.

    Comments are left out. Lines that continue a value are joined with it. An
    indented line that continues no value is read like any other.
    """
    section, name, values = '', '', []
    for line in [*text.splitlines(), '']:
        if name and line[:1].isspace() and line.strip():
            values.append(line.strip())
            continue
        if name:
            yield Option(section, name, '\n'.join(values))
            name = ''
        line = line.strip()
        header, option = _SECTION.match(line), _OPTION.match(line)
        if header:
            section = header[1].strip()
        elif option:
            name, values = option[1], [_unquoted(option[2])]


def _unquoted(value: str) -> str:
    """Return a value without the quotation marks that oslo.config removes."""
    if value[:1] in ('"', "'") and value[0] == value[-1]:
        return value[1:-1]
    return value


def is_secret(option: Option, known: Mapping[str, bool]) -> bool:
    """Return whether the value of an option is never shown.

    :param known: by the names of known options: whether they are secrets
    """
    name = option.name.replace('-', '_')
    return name not in _URL_NAMES and (
        known.get(name, True) or _names_secret(name))


def _names_secret(name: str) -> bool:
    """Return whether an option has a secret, by its name."""
    return bool(_SECRET_NAME.search(name)) and not _ABOUT_SECRETS.search(name)


def shown(found: Iterable[Option], sections: Collection[str],
          known: Mapping[str, bool]) -> str:
    """Return the options of some sections as a file, without secrets.

    :param known: see :func:`is_secret`
    """
    lines, before = [], None
    for option in found:
        if option.section not in sections:
            continue
        if option.section != before:
            before = option.section
            lines.append('[%s]' % before)
        lines.append('%s = %s' % (option.name, HIDDEN if is_secret(
            option, known) else _shown_url(option.value) if _is_url(option)
            else _URL.sub(r'\1%s@' % HIDDEN, option.value)))
    return '\n'.join(lines) + '\n'


def _is_url(option: Option) -> bool:
    return option.name.replace('-', '_') in _URL_NAMES


def _shown_url(value: str) -> str:
    """Return a URL without its credentials; nothing of an invalid URL."""
    found = _PARTS.match(value)
    if value and not found:
        return HIDDEN
    return '%s%s@%s' % (found[1], HIDDEN, found[3]) if (
        found and found[2]) else value


def secrets(found: Iterable[Option], known: Mapping[str, bool]
            ) -> frozenset[str]:
    """Return the secret values of a configuration, for :class:`Redaction`.

    Of unknown options only values with a secret's name are taken: a common
    word, removed from all texts, would make them unreadable.

    :param known: see :func:`is_secret`
    """
    values: set[str] = set()
    for option in found:
        name = option.name.replace('-', '_')
        if _shown_url(option.value) == HIDDEN if _is_url(option) else (
                known.get(name) or _names_secret(name)):
            values |= {option.value, *option.value.split('\n')}
        values |= set(_passwords(option.value, _is_url(option)))
    values |= {urllib.parse.unquote(each) for each in values}
    return frozenset(text for each in values for text in (
        each, urllib.parse.quote(each), urllib.parse.quote(each, safe=''),
        urllib.parse.quote_plus(each), json.dumps(each)[1:-1]) if text)


def _passwords(value: str, is_url: bool) -> Iterator[str]:
    """Yield the passwords in the URLs of a value, in both readings.

    The URL of a message bus has several hosts, each with credentials. The
    password of a database may have an unquoted @ or comma.

    :param is_url: whether the value is a URL: with spaces, or mistyped
    """
    found = [match[1] for match in re.finditer(
        r'[A-Za-z][\w+.-]*://(\S*)@', value)]
    if is_url:
        before = value.rpartition('@')[0]
        found.append(before.partition('//')[2] or before)
        yield before.rpartition(':')[2]
    for each in found:
        yield each.partition(':')[2]
        first = each.partition('@')[0].partition(':')[2]
        if len(first) >= _SHORT:  # the rest of the URL may have the last @
            yield first
        *others, last = each.split(',')
        for each in (*(each.rpartition('@')[0] for each in others), last):
            yield each.partition(':')[2]
    for match in re.finditer(r'[?&;](\w+)=([^&;#\s]+)', value):
        if _names_secret(match[1]):
            yield match[2]


def plain(text: str) -> str:
    """Return a text without terminal sequences and control characters."""
    return _CONTROL.sub('?', _SEQUENCE.sub('', text.replace('\r\n', '\n')))


class Redaction:
    """Removes secrets from texts.

    :param values: the secrets; see :func:`secrets`
    """

    def __init__(self, values: Collection[str] = ()):
        longest = sorted(values, key=len, reverse=True)
        self._values = re.compile('|'.join(
            re.escape(each) if len(each) >= _SHORT
            else r'(?<!\w)%s(?!\w)' % re.escape(each)
            for each in longest)) if longest else None

    def __call__(self, text: str) -> str:
        """Return a text without secrets and without terminal sequences."""
        text = plain(text)
        if self._values:
            text = self._values.sub(HIDDEN, text)
        text = _URL.sub(r'\1%s@' % HIDDEN, text)
        text = _CHAP.sub('CHAP %s %s' % (HIDDEN, HIDDEN), text)
        text = _HEADER.sub(r'\1' + HIDDEN, text)
        text = _TOKEN.sub(HIDDEN, text)
        text = _PEM.sub(r'\1' + HIDDEN, text)
        text = _CALL.sub(r'\1' + HIDDEN, text)
        text = _CRYPT.sub(r'\1' + HIDDEN, text)
        text = _RECOVERY_KEY.sub(HIDDEN, text)
        text = _INTEGRITY.sub(r'\1:' + HIDDEN, text)
        return '\n'.join(
            _masked(line) if _SECRET_WORD.search(line) else line
            for line in text.split('\n'))


def _masked(line: str) -> str:
    """Return a line without secrets that have a name."""
    line = _NAMED.sub(r'\1' + HIDDEN, line)
    line = _PROSE.sub(lambda found: (found[1] or found[2]) + HIDDEN, line)
    line = _HEX_KEY.sub(r'\1' + HIDDEN, line)
    return str(strutils.mask_password(line, HIDDEN))
