# SPDX-License-Identifier: Apache-2.0
"""Options of nova.conf that the scheduler's filter and weigher read."""

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = 'localclone_placement'
#: Nova's own section for Cinder: where it is, and a login.
CINDER = 'cinder'

placement_opts = [
    cfg.FloatOpt(
        'weight_multiplier', default=10.0,
        help='Weight of a host that is the home of a server\'s volumes, '
        'beside Nova\'s other weighers, most of which have 1.0. The metadata '
        'localclone_weight_multiplier of a host aggregate takes precedence.'),
    cfg.FloatOpt(
        'timeout', default=3.0, min=0.1, max=60,
        help='Seconds that scheduling a server waits for Cinder, in all. '
        'After this time every host passes, and all weigh the same.'),
    cfg.FloatOpt(
        'retry_interval', default=30.0, min=0, max=3600,
        help='Seconds for which Cinder is not asked again after it did not '
             'answer.'),
    cfg.FloatOpt(
        'cache_time', default=15.0, min=0, max=3600,
        help='Seconds for which Cinder\'s data of its nodes (free space, '
        'problems) is used for other servers. Volumes are asked for once per '
        'request.'),
    cfg.DictOpt(
        'hosts', default={},
        help='Cinder\'s name of a host by Nova\'s, where they differ by more '
             'than a domain: "compute1:storage1,compute2:storage2".'),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options, and those of a login."""
    conf.register_opts(placement_opts, GROUP)
    loading.register_auth_conf_options(conf, GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For oslo-config-generator and the documentation."""
    return [(GROUP, placement_opts + loading.get_auth_common_conf_options()
             + loading.get_auth_plugin_conf_options('password'))]
