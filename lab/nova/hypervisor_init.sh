#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a node a hypervisor: libvirt and what it needs. Once after each boot.
# $1: a directory with libvirtd.conf and qemu.conf, kept across power cuts.
# $2: a directory with the key of all nodes; $3: this node's address.
set -e
state=$1 keys=$2 address=$3
[ ! -e /run/compute-ready ] || exit 0
mkdir -p $state/domains /run/nova/instances /etc/libvirt/qemu /run/dbus
# Domains are defined on the host's disk, as on a real one. Sockets and pid
# files are below /run and /var/lib/libvirt.
mount --bind $state/domains /etc/libvirt/qemu
mkdir -p /var/lib/libvirt /var/log/libvirt/qemu
# Room for the disks of instances that have any, which are sparse.
mount -t tmpfs -o size=16g,mode=755 tmpfs /run/nova/instances
mount -t tmpfs tmpfs /var/lib/libvirt
mount -t tmpfs tmpfs /var/cache/libvirt
cp $state/libvirtd.conf $state/qemu.conf /etc/libvirt/
# libvirtd looks its own user up even if qemu.conf names another.
id libvirt-qemu >/dev/null 2>&1 || useradd --system --user-group \
    --no-create-home --home /var/lib/libvirt libvirt-qemu
# A cold migration works on the other node by ssh. root's home is the host's
# own, so here root gets another one; /etc is the node's (see node_init.sh).
sed -i 's|^\(root:[^:]*:[^:]*:[^:]*:[^:]*\):[^:]*:|\1:/run/root:|' /etc/passwd
mkdir -p -m 700 /run/root /run/root/.ssh
cp $keys/key.pub /run/root/.ssh/authorized_keys
cat >/etc/ssh/ssh_config <<EOF
Host *
    IdentityFile $keys/key
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    ConnectTimeout 20
EOF
mkdir -p /etc/dropbear
dropbear -R -s -p $address:22
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
