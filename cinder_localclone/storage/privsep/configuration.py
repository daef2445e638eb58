# SPDX-License-Identifier: Apache-2.0
"""The configuration files given to the privileged process at its start.

A caller names a backend section, never a file or a directory. privsep starts
its daemons with the configuration files of the service, or with the files
named in ``helper_command``. Commands run by root read their own.
"""

import threading
import typing

from oslo_config import cfg

from cinder_localclone.core import exceptions
from cinder_localclone.service import options

#: Options with directories; a caller can't choose a directory.
HEADER_BACKUPS = 'localclone_header_backup_dir'
SEALED_KEYS = 'localclone_key_cache_dir'
#: Cinder's section for options that several backends share.
_SHARED = 'backend_defaults'
_OPTIONS = [each for each in options.localclone_opts
            if each.dest in (HEADER_BACKUPS, SEALED_KEYS,
                             'localclone_metadata_volume_group')]
#: Cinder's options. The daemons do not import Cinder.
_OF_CINDER = (cfg.StrOpt('volume_driver'),
              cfg.StrOpt('volume_group', default='cinder-volumes'))
_GROUPS = 'volume_group', 'localclone_metadata_volume_group'
_read: cfg.ConfigOpts | None = None
#: Volume groups in these options, with the configuration they came from.
_groups: tuple[cfg.ConfigOpts | None, frozenset[str]] = None, frozenset()
#: oslo.config is not thread-safe while it registers options.
_lock = threading.Lock()


def use(paths: list[str]) -> None:
    """Use the configuration files of a command run by root."""
    global _read
    _read = _parsed(paths)


def _parsed(paths: list[str], directories: list[str] | None = None
            ) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    conf([], default_config_files=paths, default_config_dirs=directories or [])
    return conf


def _conf() -> cfg.ConfigOpts:
    """Return the options; read the files at the first call."""
    global _read
    if _read is None:
        _read = _parsed(*(list(getattr(cfg.CONF, each, None) or ())
                          for each in ('config_file', 'config_dir')))
    return _read


def files() -> list[str]:
    """Return the paths of the configuration files of this process."""
    return list(_conf().config_file or ())


def has(backend: str) -> bool:
    """Return whether these files have a section of a backend."""
    return backend in _conf().list_all_sections()


def directory(backend: str, option: str) -> str:
    """Return the path in an option of a backend section, or ''.

    :param option: :data:`HEADER_BACKUPS` or :data:`SEALED_KEYS`
    """
    with _lock:
        return _value(backend, option)


def _value(section: str, option: str) -> str:
    conf, every = typing.cast(typing.Any, _conf()), (*_OPTIONS, *_OF_CINDER)
    for name in (_SHARED, section):
        conf.register_opts(every, name)
    for each in every:
        conf.set_default(each.dest, None, section)
    own, shared = conf[section], conf[_SHARED]
    return own[option] or shared[option] or ''


def groups() -> frozenset[str]:
    """Return the volume groups of all backends of this driver."""
    global _groups
    conf = _conf()
    if _groups[0] is not conf:
        with _lock:
            _groups = conf, frozenset(
                _value(section, option)
                for section in conf.list_all_sections()
                if section not in (_SHARED, 'DEFAULT')
                and _value(section, 'volume_driver') == options.DRIVER
                for option in _GROUPS) - {''}
    return _groups[1]


def require_groups(*wanted: str) -> None:
    """Refuse volume groups which no backend of this driver has.

    :raises ForeignGroup: if a group is not one of this driver's
    """
    own = groups()
    for group in wanted:
        if group not in own:
            raise exceptions.ForeignGroup(
                group=group, files=', '.join(files()))
