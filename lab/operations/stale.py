# SPDX-License-Identifier: Apache-2.0
"""Cinder's API and scheduler ask the home that a volume had before.

As they do if a volume moves after they have read its row. Both load this by
options of their own (:data:`OPTIONS`), so nothing of Cinder is changed. A
file says which host's requests go to which other one instead.
"""

import json
import pathlib

#: Of cinder-api and cinder-scheduler.
OPTIONS = {
    'osapi_volume_extension': ['cinder.api.contrib.standard_extensions',
                               'cinder_localclone.service.messages.load',
                               'lab.operations.stale.load'],
    'scheduler_driver': 'lab.operations.stale_scheduler.Scheduler'}


def _path(state_path):
    return pathlib.Path(state_path, 'former_homes.json')


# -- in the lab

def _lab_path(lab):
    return _path(lab.control.directory / 'cinder')


def send(lab, home, former):
    """What is for one node goes to another one."""
    _lab_path(lab).write_text(json.dumps(
        {home.service_host: former.service_host}))


def is_on(lab):
    """Whether any requests go elsewhere."""
    return _lab_path(lab).exists()


def forget(lab):
    """Every request goes where it should."""
    _lab_path(lab).unlink(missing_ok=True)


# -- in cinder-api and cinder-scheduler

def former(host, homes):
    """The host that is asked instead of one.

    :param homes: {host: the one of before}
    """
    backend, mark, pool = (host or '').partition('#')
    return homes[backend] + mark + pool if backend in homes else host


def homes():
    """{host: the one of before}, as it is now."""
    from oslo_config import cfg
    try:
        return json.loads(_path(cfg.CONF.state_path).read_text())
    except OSError:
        return {}


def install():
    """Have this process ask the hosts of before."""
    from cinder.volume import rpcapi
    ask = rpcapi.VolumeAPI._get_cctxt

    def ask_former(self, host=None, version=None, **kwargs):
        return ask(self, former(host, homes()), version, **kwargs)
    if ask.__name__ != ask_former.__name__:
        rpcapi.VolumeAPI._get_cctxt = ask_former


def load(_extension_manager):
    """Entry for cinder-api's option ``osapi_volume_extension``."""
    install()
