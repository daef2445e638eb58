# SPDX-License-Identifier: Apache-2.0
"""The stock kernels of distributions: which have dm-clone. Pure.

Each row comes from the configuration file named in it. ``doctor`` and the
installation pages read this table, so each fact is written once. A fact that
was not seen is :attr:`Built.UNKNOWN`.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import enum
import re


class Built(enum.Enum):
    """Whether a kernel is built with a driver."""

    YES = 'yes'
    NO = 'no'
    UNKNOWN = 'unknown'


YES, NO, UNKNOWN = Built.YES, Built.NO, Built.UNKNOWN
#: The package of this project that builds dm-clone (``packaging/dkms``).
DKMS = 'cinder-localclone-dkms'
DEB = 'apt install ./%s_*_all.deb' % DKMS
RPM = 'dnf install ./%s-*.noarch.rpm' % DKMS
LOAD = 'modprobe dm-clone'


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A stock kernel.

    :param name: the distribution
    :param ids: the ID in os-release(5); several for a family
    :param versions: VERSION_ID or VERSION_CODENAME: complete, or up to a dot
    :param release: a regular expression for ``uname -r``
    :param kernel: the version with the configuration that was read
    :param clone: CONFIG_DM_CLONE
    :param ebs: CONFIG_DM_EBS
    :param integrity: CONFIG_DM_INTEGRITY
    :param lio: CONFIG_TARGET_CORE, CONFIG_TCM_IBLOCK, CONFIG_ISCSI_TARGET
    :param package: the package with the modules
    :param command: the command that brings dm-clone
    :param source: the configuration file
    :param date: its date, or the date of its package
    :param lio_command: the command that brings the iSCSI target, if the
        packages of the kernel lack it
    :param remark: the limits of these facts, and alternatives
    """

    name: str
    ids: tuple[str, ...]
    versions: tuple[str, ...]
    release: str
    kernel: str
    clone: Built
    ebs: Built
    integrity: Built
    lio: Built
    package: str
    command: str
    source: str
    date: str
    lio_command: str = ''
    remark: str = ''

    def runs(self, release: str) -> bool:
        """Return whether ``uname -r`` may be of this kernel."""
        return bool(re.search(self.release, release))

    def is_of(self, os_release: Mapping[str, str]) -> bool:
        """Return whether os-release(5) is of this distribution."""
        version = os_release.get('VERSION_ID') or os_release.get(
            'VERSION_CODENAME', '')
        return os_release.get('ID', '') in self.ids and (
            not self.versions or any(
                version == each or version.startswith(each + '.')
                for each in self.versions))


_EXTRA = 'apt install linux-modules-extra-$(uname -r)'
_UBUNTU = ('Flavours other than generic were not looked at. The list of '
           'modules in linux-modules (NVIDIA/NV-Kernels 420a292) has '
           'drivers/md, but not iscsi_target_mod.')
_UBUNTU_LIO = ('ISCSI_TARGET from the exported symbols of Proxmox\'s '
               'kernel, built from Ubuntu\'s tree.')
_RED_HAT = 'Its own file was not seen. '
_DEBIAN = 'The flavours cloud and rt are the same.'
# Not the kernels of others: ELRepo's (6.1.x.el9.elrepo), Oracle's (el9uek).
_EL9, _EL10 = r'^5\.14\.0-.*\.el9[._]', r'^6\.12\.0-.*\.el10[._]'

KERNELS = (
    Kernel('Debian 12', ('debian',), ('12',),
           r'^6\.1\.0-\d+-(cloud-|rt-)?(amd64|arm64)$',
           '6.1.192-3', NO, NO, YES, YES, '', DEB,
           'linux-image-6.1.0-57-amd64: /boot/config-6.1.0-57-amd64',
           '2026-11-26', remark=_DEBIAN),
    Kernel('Debian 12, Linux 6.12', ('debian',), ('12',),
           r'^6\.12\.\d+\+(deb|bpo)12-', '6.12.117-1~deb12u1', NO, NO, YES,
           YES, '', DEB, 'linux-config-6.12: /usr/src/linux-config-6.12/'
           'config.amd64_none_amd64.xz', '2026-11-14', remark=_DEBIAN +
           ' From bookworm-security.'),
    Kernel('Debian 13', ('debian',), ('13',), r'^6\.12\.\d+\+deb13-',
           '6.12.118-1', NO, NO, YES, YES, '', DEB,
           'linux-image-6.12.118+deb13-amd64: '
           '/boot/config-6.12.118+deb13-amd64', '2026-11-20',
           remark=_DEBIAN + ' Alternative: the kernel of '
           'trixie-backports.'),
    Kernel('Debian 13, trixie-backports', ('debian',), ('13',),
           r'^7\.\d+\.\d+\+deb13', '7.3.4-1~bpo13+1', YES, NO, YES, YES,
           'linux-modules-7.3.4+deb13-amd64',
           'apt install -t trixie-backports linux-image-amd64',
           'linux-base-7.3.4+deb13-amd64: '
           '/usr/lib/modules/7.3.4+deb13-amd64/config', '2026-11-15'),
    Kernel('Debian forky', ('debian',), ('14', 'forky'), r'\+deb14',
           '7.2.12-1', YES, NO, YES, YES, 'linux-modules-7.2.12+deb14-amd64',
           LOAD, 'linux-base-7.2.12+deb14-amd64: '
           '/usr/lib/modules/7.2.12+deb14-amd64/config', '2026-10-22'),
    Kernel('Ubuntu 22.04', ('ubuntu',), ('22.04',), r'^5\.15\.0-\d+-',
           '5.15.0', YES, YES, YES, YES, 'linux-modules-VERSION-generic',
           'apt install linux-image-generic',
           'debian.master/config/config.common.ubuntu of Ubuntu\'s tree, in '
           'balabit-deps/balabit-os-9-linux 0d6e8b8',
           'not known (its tree: to 5.15.0-143.153, 2025-06-13)', _EXTRA,
           _UBUNTU),
    Kernel('Ubuntu 24.04', ('ubuntu',), ('24.04',), r'^6\.8\.0-\d+-',
           '6.8.0', YES, YES, YES, YES, 'linux-modules-VERSION-generic',
           'apt install linux-image-generic',
           'debian.master/config/annotations of Ubuntu\'s tree, in '
           'particle-iot/tachyon-ubuntu-24.04-kernel 28ce79f',
           'not known (its tree: 2025.09.15)', _EXTRA,
           _UBUNTU + ' ' + _UBUNTU_LIO),
    Kernel('Ubuntu 26.04', ('ubuntu',), ('26.04',), r'^7\.0\.0-\d+-',
           'before its release, 6.15 or later', YES, YES, YES, YES,
           'linux-modules-VERSION-generic', 'apt install linux-image-generic',
           'debian.master/config/annotations of Ubuntu\'s tree, in '
           'CriticalShift/linux-ubuntu-resolute 3d79a7b',
           'not known (its tree: 2025.07.04 or later)',
           remark='Flavours other than generic were not looked at. '
           'linux-modules-extra was dropped in 6.15. ' + _UBUNTU_LIO),
    Kernel('Rocky Linux 9', ('rocky',), ('9',), _EL9,
           '5.14.0-284.30.1.el9_2.92ciq_lts.3.1', NO, NO, YES, YES, '', RPM,
           'SOURCES/kernel-x86_64-rhel.config of ciq-rocky-lts/kernel '
           'd55abe0', '2024-12-13',
           remark='The long-term kernel of Rocky Linux 9.2 by CIQ.'),
    Kernel('OpenELA 9', ('openela',), ('9',), _EL9,
           '5.14.0-362.24.1.el9_3', NO, NO, YES, YES, '', RPM,
           'SOURCES/kernel-x86_64-rhel.config of openela-main/kernel 734d02e',
           '2024-03-14'),
    Kernel('RHEL 9, AlmaLinux 9, CentOS Stream 9',
           ('rhel', 'almalinux', 'centos'), ('9',), _EL9,
           '5.14.0-284.11.1.el9_2; CentOS Stream: 5.14.0-316.el9', NO, NO,
           YES, YES, '', RPM, 'kernel-x86_64-rhel.config of gencoo/kernel, a '
           'copy of their repositories: 827e1bb (RHEL, published by CentOS), '
           '194fdf3 (AlmaLinux), 70ed862 (CentOS Stream)', '2023-05-19'),
    Kernel('RHEL 10, Rocky Linux 10, AlmaLinux 10, CentOS Stream 10',
           ('rhel', 'rocky', 'almalinux', 'centos', 'openela'), ('10',),
           _EL10, '', UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, '', RPM,
           '', '', remark=_RED_HAT + 'OpenELA\'s file for another '
           'architecture lacks dm-clone and dm-ebs, and has dm-integrity and '
           'LIO (SOURCES/kernel-riscv64-rhel.config of openela-main/kernel '
           'f994194; its tree: 6.12.0-211.53.1.el10_2, 2026-09-07).'),
    Kernel('openSUSE Tumbleweed', ('opensuse-tumbleweed',), (),
           r'^(6\.19|7)\..*-default$', '6.19.11', YES, YES, YES, YES,
           'kernel-default', 'zypper install kernel-default',
           'config/x86_64/default of SUSE/kernel-source 0590338', 'not known',
           remark='The stable branch.'),
    Kernel('SLES 15 and 16, openSUSE Leap',
           ('sles', 'sled', 'opensuse-leap'), (), r'-default$', '', UNKNOWN,
           UNKNOWN, UNKNOWN, UNKNOWN, 'kernel-default',
           'zypper install kernel-default', '', '',
           remark='Its configuration was not seen. supported.conf of '
           'SUSE/kernel-source 02397b9 lists dm-clone, dm-ebs and '
           'dm-integrity as supported modules.'),
    Kernel('Proxmox VE 8', (), (), r'^6\.8\..*-pve$', '6.8.12-43', YES, YES,
           YES, YES, 'proxmox-kernel-VERSION-pve', LOAD,
           'debian/rules of proxmox/pve-kernel b187eb7, which changes no '
           'option of device-mapper, on Ubuntu\'s 6.8.0-136.136',
           '2026-08-18',
           remark='Derived from the configuration of Ubuntu 24.04.'),
    Kernel('Proxmox VE 9', (), (), r'^(6\.1[47]|7\.0)\..*-pve$',
           '7.0.14-14', YES, YES, YES, YES, 'proxmox-kernel-VERSION-pve',
           LOAD, 'debian/rules.d/config-common.opts of proxmox/pve-kernel '
           '6e44995, which changes no option of device-mapper but '
           'BLK_DEV_DM, on Ubuntu\'s 7.0.0-31.31', '2026-08-22',
           remark='Derived from the configuration of Ubuntu 26.04.'),
)


def find(os_release: Mapping[str, str], release: str) -> Kernel | None:
    """Return the stock kernel of a node; None for any other kernel.

    The kernel's own name decides: a container has the os-release(5) of its
    image and the kernel of its host. The distribution chooses between kernels
    with the same kind of name.

    :param os_release: its fields
    :param release: of the running kernel (``uname -r``)
    """
    return next(_candidates(os_release, release), None)


def _candidates(os_release: Mapping[str, str], release: str
                ) -> Iterator[Kernel]:
    matching = [each for each in KERNELS if each.runs(release)]
    yield from (each for each in matching if each.is_of(os_release))
    yield from matching


def remedy(os_release: Mapping[str, str], release: str) -> tuple[str, str]:
    """Return why a node has no dm-clone, and the command that brings it.

    The parameters are the same as of :func:`find`.

    :returns: the cause; the command
    """
    found = find(os_release, release)
    if found is None:
        return ('the kernel lacks this target', 'use a kernel with '
                'CONFIG_DM_CLONE, or build the module: '
                'see "Kernels" in the installation guide')
    if found.clone is YES:
        return ('the kernel of %s has this target as a module; it can\'t be '
                'loaded' % found.name, found.command)
    return ('the kernel of %s is built without this target' % found.name
            if found.clone is NO else
            'the kernel lacks this target', found.command)
