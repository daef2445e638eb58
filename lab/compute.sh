#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a node a hypervisor: libvirt and what it needs. Once after each boot.
# $1: a directory with libvirtd.conf and qemu.conf, kept across power cuts.
set -e
state=$1
[ ! -e /run/compute-ready ] || exit 0
mkdir -p $state/domains /run/nova/instances /etc/libvirt/qemu /run/dbus
# Domains are defined on the host's disk, as on a real one. Sockets and pid
# files are below /run and /var/lib/libvirt.
mount --bind $state/domains /etc/libvirt/qemu
mkdir -p /var/lib/libvirt /var/log/libvirt/qemu
mount -t tmpfs tmpfs /var/lib/libvirt
mount -t tmpfs tmpfs /var/cache/libvirt
cp $state/libvirtd.conf $state/qemu.conf /etc/libvirt/
# libvirtd looks its own user up even if qemu.conf names another.
id libvirt-qemu >/dev/null 2>&1 || useradd --system --user-group \
    --no-create-home --home /var/lib/libvirt libvirt-qemu
dbus-daemon --system --fork
virtlogd -d
libvirtd -d -l
for _ in $(seq 150); do
    if virsh -q -c qemu:///system uri >/dev/null 2>&1; then
        touch /run/compute-ready
        exit 0
    fi
    sleep 0.2
done
echo "libvirtd did not start" >&2
exit 1
