# SPDX-License-Identifier: Apache-2.0
"""Options in nova.conf of the scheduler's filter and weigher."""

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = 'localclone_placement'
#: Nova's own section for Cinder: its address, and a login.
CINDER = 'cinder'

placement_opts = [
    cfg.FloatOpt(
        'weight_multiplier', default=10.0,
        help='Weight of the home of a server\'s volumes. Most of Nova\'s '
        'weighers have 1.0. The metadata localclone_weight_multiplier of a '
        'host aggregate takes precedence.'),
    cfg.FloatOpt(
        'timeout', default=3.0, min=0.1, max=60,
        help='Total time in seconds to wait for Cinder, for each server. '
        'After this time every host passes, and all hosts weigh the same.'),
    cfg.FloatOpt(
        'retry_interval', default=30.0, min=0, max=3600,
        help='Time in seconds before Cinder is asked again after it did not '
             'answer.'),
    cfg.FloatOpt(
        'cache_time', default=15.0, min=0, max=3600,
        help='Time in seconds to reuse Cinder\'s data about nodes (free '
        'space, problems) for other servers. The volumes of a server are read '
        'once for each request.'),
    cfg.DictOpt(
        'hosts', default={},
        help='Cinder\'s host names by Nova\'s host names, where they differ '
             'by more than a domain: "compute1:storage1,compute2:storage2".'),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options, and the options of a login."""
    conf.register_opts(placement_opts, GROUP)
    loading.register_auth_conf_options(conf, GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options, for oslo-config-generator and the documentation."""
    return [(GROUP, placement_opts + loading.get_auth_common_conf_options()
             + loading.get_auth_plugin_conf_options('password'))]
