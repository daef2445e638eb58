# SPDX-License-Identifier: Apache-2.0
"""Installation commands of distributions. Pure.

For the advice of ``doctor`` on Debian, Fedora, Red Hat and SUSE, and their
derivatives.
"""

from collections.abc import Iterable
from collections.abc import Mapping

DEB, RPM, SUSE = 'apt install', 'dnf install', 'zypper install'
#: By the IDs in os-release(5).
FAMILIES = {**dict.fromkeys(('debian', 'ubuntu'), DEB),
            **dict.fromkeys(('fedora', 'rhel', 'centos'), RPM),
            **dict.fromkeys(('suse', 'opensuse', 'sles'), SUSE)}
#: The package of each command: Debian's; others, where they differ.
PACKAGES = {
    'cryptsetup': ('cryptsetup-bin', {RPM: 'cryptsetup',
                                      SUSE: 'cryptsetup'}),
    'dmsetup': ('dmsetup', {RPM: 'device-mapper', SUSE: 'device-mapper'}),
    'iscsiadm': ('open-iscsi', {RPM: 'iscsi-initiator-utils'}),
    'lvs': ('lvm2', {}),
    'modprobe': ('kmod', {}),
    'swanctl': ('charon-systemd libstrongswan-standard-plugins '
                'strongswan-swanctl', {RPM: 'strongswan',
                                       SUSE: 'strongswan'}),
    'sync': ('coreutils', {}),
    'thin_check': ('thin-provisioning-tools', {
        RPM: 'device-mapper-persistent-data'}),
    'thin_dump': ('thin-provisioning-tools', {
        RPM: 'device-mapper-persistent-data'}),
    'udevadm': ('udev', {RPM: 'systemd-udev'}),
}
#: The prefixes of iSCSI initiator names.
INITIATORS = {DEB: 'iqn.1993-08.org.debian:01',
              RPM: 'iqn.1994-05.com.redhat', SUSE: 'iqn.1996-04.de.suse:01'}


def family(os_release: Mapping[str, str]) -> str:
    """Return the installation command by os-release(5); '' if unknown.

    :param os_release: its fields
    """
    ids = [word.partition('-')[0] for name in ('ID', 'ID_LIKE')
           for word in os_release.get(name, '').split()]
    return next((FAMILIES[each] for each in ids if each in FAMILIES), '')


def install(commands: Iterable[str], how: str) -> str:
    """Return the installation command for some commands.

    :param how: see :func:`family`; '' for all distributions
    """
    wanted = list(commands)
    return '; or '.join('%s %s' % (each, ' '.join(sorted(
        {PACKAGES[command][1].get(each, PACKAGES[command][0])
         for command in wanted})))
        for each in ([how] if how else (DEB, RPM, SUSE)))


def initiator_name(how: str) -> str:
    """Return a command to make an iSCSI initiator name."""
    return ('iscsi-iname -p "InitiatorName=%s" '
            '> /etc/iscsi/initiatorname.iscsi; systemctl restart iscsid'
            % INITIATORS.get(how, INITIATORS[DEB]))
