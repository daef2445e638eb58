#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The first process of a kernel that is tried: says whether it can do with its
# disk all that nodes do, which includes writing zeroes of the kernel's own.
# What it prints last is read by lab/kernel.py.
export PATH=/usr/sbin:/sbin:/usr/bin:/bin DM_DISABLE_UDEV=1
power_off() {
    # By the system call: not every machine has a command for it.
    exec /usr/bin/python3 -S -c 'import ctypes
ctypes.CDLL(None).reboot(0x4321fedc)'
}
trap power_off EXIT
set -e -o pipefail
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
for word in $(</proc/cmdline); do
    case $word in lc_*=*) declare "$word";; esac
done
mount --bind $lc_modules /lib/modules
modprobe -a virtio_blk overlay dm-mod dm-clone dm-thin-pool dm-snapshot \
    dm-flakey dm-delay dm-dust sd_mod iscsi_tcp configfs target_core_mod \
    target_core_iblock iscsi_target_mod loop ext4 xfs
echo "write back" >/sys/block/vda/cache_type
dd if=/dev/zero of=/dev/vda bs=4k count=1 oflag=direct,dsync status=none
dmsetup create meta --table "0 8192 linear /dev/vda 0"
dmsetup create data --table "0 65536 linear /dev/vda 8192"
dmsetup create pool \
    --table "0 65536 thin-pool /dev/mapper/meta /dev/mapper/data 128 0"
dmsetup message pool 0 "create_thin 0"
dmsetup create thin --table "0 65536 thin /dev/mapper/pool 0"
# Part of a fresh block: the kernel writes the rest of it, from its zeroes.
head -c 4096 /dev/urandom >/dev/shm/block
dd if=/dev/shm/block of=/dev/mapper/thin bs=4k seek=20 count=1 \
    oflag=direct,dsync status=none
dd if=/dev/mapper/thin bs=4k skip=20 count=1 iflag=direct status=none |
    cmp - /dev/shm/block
dd if=/dev/mapper/thin bs=4k skip=21 count=11 iflag=direct status=none |
    cmp -n 45056 - /dev/zero
echo "lab: this kernel works: $(uname -r)"
