#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a node on a stock kernel: mount this machine's root, and
# go on as a node does. What the lab and a node both write is not cached.
export PATH=/bin
busybox mkdir -p /proc /sys /dev /host
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev
for each in $(busybox cat /proc/cmdline); do
    case $each in
        lc_init=*) init=${each#*=};;
        lc_state=*) state=${each#*=};;
    esac
done
/bin/modprobe -a virtio_pci virtio_blk virtio_net 9pnet_virtio 9p
how=trans=virtio,version=9p2000.L,msize=512000,rw
busybox mount -t 9p -o $how,cache=loose root /host
busybox mount -t 9p -o $how,cache=none state /host$state
busybox ip link set eth0 name vec0
busybox mount -o move /dev /host/dev
busybox umount /sys /proc
exec busybox switch_root /host "$init"
