# SPDX-License-Identifier: Apache-2.0
"""A checkout of DevStack, and the local.conf that a node gets."""

import argparse
import pathlib
import re
import shutil

#: What of it the phases of a plugin need.
PARTS = ('functions', 'functions-common', 'stackrc', 'inc', 'lib', 'files',
         'extras.d')
HELP = (
    'DEVSTACK names no checkout of DevStack%s. Get one and say where it is:\n'
    '  git clone https://opendev.org/openstack/devstack DIR\n'
    '  make devstack DEVSTACK=DIR')
#: What is not on the node, or not there for DevStack to change.
NOT_RUN = (
    ('stack.sh itself', 'its phases of the plugin are, in its order'),
    ('apt, pip, git', 'the nodes have no network: OFFLINE=True, and Cinder '
     'and the driver from the lab\'s venv'),
    ('Keystone, Glance, Placement, database, bus', 'those of the lab are '
     'used instead of DevStack\'s'),
    ('Nova, Neutron, Horizon, Swift', 'nova.conf is written, no service is '
     'started'),
    ('cinder-api, cinder-scheduler', 'those of the lab; their options in '
     'cinder.conf are checked'),
    ('systemd', 'a stand-in starts and stops what units name'),
    ('DevStack\'s Tempest', 'make tempest runs the suite on the lab\'s own '
     'nodes'),
)
#: local.conf of the lab, beside that of the documentation. /usr is the host's.
_LAB = '''
HOST_IP={address}
DEST={dest}
DATA_DIR={dest}/data
OFFLINE=True
ENABLED_SERVICES=n-cpu,c-api,c-vol
CINDER_SERVICE_REPORT_INTERVAL=5
GLANCE_URL={glance}
LOCALCLONE_SIZE=20G
LOCALCLONE_REQUIRE_CLONE=True
LOCALCLONE_BIN_DIR={dest}/local/bin
'''


def directory(text) -> pathlib.Path:
    """The checkout that an argument names.

    :raises argparse.ArgumentTypeError: with what to do, if it is none
    """
    path = pathlib.Path(text or '/nonexistent').resolve()
    missing = [part for part in PARTS if not (path / part).exists()]
    if missing:
        raise argparse.ArgumentTypeError(HELP % (
            ' (%s has no %s)' % (text, missing[0]) if text else ''))
    return path


def copy(source, target) -> None:
    """What is needed of it, to where a node can see it."""
    target.mkdir(parents=True)
    for part in PARTS:
        path = source / part
        if path.is_dir():
            shutil.copytree(path, target / part, symlinks=True)
        else:
            shutil.copy(path, target)


def examples(readme) -> list[str]:
    """The local.conf of each example in devstack/README.rst."""
    return [re.sub('(?m)^   ', '', each) for each in re.findall(
        r'(?m)^\.\. code-block:: ini\n\n((?:   .*\n|\n)+)', readme)]


def local_conf(readme, *, url, address, dest, glance, more='') -> str:
    """The first example, as a user would take it, for a node.

    :param url: of the plugin's repository
    :param more: lines
    """
    first = re.sub('https://.*', url, examples(readme)[0]).strip()
    head, example = first.split('\n', 1)
    # enable_plugin looks at DEST.
    return head + _LAB.format(address=address, dest=dest,
                              glance=glance) + more + example + '\n'


def own(path) -> bool:
    """Whether a file below /etc is DevStack's own, which clean.sh leaves."""
    return bool(re.match(
        r'/etc/(sudoers\.d/(cinder-rootwrap|zz-secure-path)$|lvm/|target/)',
        path))
