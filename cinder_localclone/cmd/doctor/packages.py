# SPDX-License-Identifier: Apache-2.0
"""How this node's distribution installs what is missing. Pure.

For what ``doctor`` advises: Debian and its kin, Fedora and Red Hat's, SUSE.
"""

from collections.abc import Iterable
from collections.abc import Mapping

DEB, RPM, SUSE = 'apt install', 'dnf install', 'zypper install'
#: By the ids in os-release(5).
FAMILIES = {**dict.fromkeys(('debian', 'ubuntu'), DEB),
            **dict.fromkeys(('fedora', 'rhel', 'centos'), RPM),
            **dict.fromkeys(('suse', 'opensuse', 'sles'), SUSE)}
#: The package that has a command: Debian's; others, where they differ.
PACKAGES = {
    'cryptsetup': ('cryptsetup-bin', {RPM: 'cryptsetup',
                                      SUSE: 'cryptsetup'}),
    'dmsetup': ('dmsetup', {RPM: 'device-mapper', SUSE: 'device-mapper'}),
    'iscsiadm': ('open-iscsi', {RPM: 'iscsi-initiator-utils'}),
    'lvs': ('lvm2', {}),
    'modprobe': ('kmod', {}),
    'sync': ('coreutils', {}),
    'thin_check': ('thin-provisioning-tools', {
        RPM: 'device-mapper-persistent-data'}),
    'thin_dump': ('thin-provisioning-tools', {
        RPM: 'device-mapper-persistent-data'}),
    'udevadm': ('udev', {RPM: 'systemd-udev'}),
}
#: Who begins the names of iSCSI initiators.
INITIATORS = {DEB: 'iqn.1993-08.org.debian:01',
              RPM: 'iqn.1994-05.com.redhat', SUSE: 'iqn.1996-04.de.suse:01'}


def family(os_release: Mapping[str, str]) -> str:
    """How packages are installed, by os-release(5); '' if it says nothing.

    :param os_release: its fields
    """
    ids = [word.partition('-')[0] for name in ('ID', 'ID_LIKE')
           for word in os_release.get(name, '').split()]
    return next((FAMILIES[each] for each in ids if each in FAMILIES), '')


def install(commands: Iterable[str], how: str) -> str:
    """What installs some commands.

    :param how: see :func:`family`; '': what does so in each of them
    """
    wanted = list(commands)
    return '; or '.join('%s %s' % (each, ' '.join(sorted(
        {PACKAGES[command][1].get(each, PACKAGES[command][0])
         for command in wanted})))
        for each in ([how] if how else (DEB, RPM, SUSE)))


def initiator_name(how: str) -> str:
    """What makes an iSCSI initiator name."""
    return ('iscsi-iname -p "InitiatorName=%s" '
            '> /etc/iscsi/initiatorname.iscsi; systemctl restart iscsid'
            % INITIATORS.get(how, INITIATORS[DEB]))
