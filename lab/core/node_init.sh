#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The first process of a node. Its root is the host's own, read through
# hostfs; what a node writes outside the lab's directory goes to memory.
export PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
export HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for word in $(</proc/cmdline); do
    case $word in lc_*=*) declare "$word";; esac
done
mkdir -p /dev/shm
mount -t tmpfs tmpfs /run
mount --bind $lc_modules /lib/modules
# The repository and the venv may be anywhere, below /tmp too: carry them over.
mkdir -p /run/carry/repo /run/carry/venv
mount --bind $lc_repo /run/carry/repo
mount --bind $lc_venv /run/carry/venv
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /dev/shm
for what in repo venv; do
    path=lc_$what
    if [ ! -e "${!path}" ]; then
        mkdir -p "${!path}" && mount --bind /run/carry/$what "${!path}"
    fi
done
mkdir -p /dev/pts && mount -t devpts devpts /dev/pts
ln -sf /proc/self/fd /dev/fd
mkdir -p /run/lock /run/overlay /run/nova \
    /run/cinder/localclone /run/cinder/stock
modprobe -a overlay virtio_blk
overlay() {
    local to=/run/overlay/${1//\//_}
    mkdir -p $to/upper $to/work
    # Without it the host's own files would be written: rather end here.
    mount -t overlay overlay \
        -o lowerdir=$1,upperdir=$to/upper,workdir=$to/work $1 || exit 1
}
overlay /etc
# What the iSCSI initiator remembers outlives a power cut, as on a real disk.
mkdir -p $lc_records /etc/iscsi/nodes
mount --bind $lc_records /etc/iscsi/nodes
mkdir -p -m 700 $lc_headers /run/localclone-headers
mount --bind $lc_headers /run/localclone-headers
overlay /var/lib
overlay /var/log
hostname $lc_name
ip link set lo up
ip address add $lc_address/24 dev vec0
# A tap wakes its reader just before what it has can be seen: one wake-up in
# some hundred is lost, and the packet waits for the next one, 200 ms if it is
# the last. So look again by the clock after each, for a quarter of a second.
echo 1000000 >/sys/class/net/vec0/gro_flush_timeout
echo 250 >/sys/class/net/vec0/napi_defer_hard_irqs
ip link set vec0 up
for disk in vda vdb; do
    echo "write back" >/sys/block/$disk/cache_type
done
modprobe -a dm-mod dm-clone dm-thin-pool dm-snapshot dm-flakey dm-delay \
    dm-dust dm-crypt algif_skcipher sd_mod iscsi_tcp configfs \
    target_core_mod target_core_iblock iscsi_target_mod loop ext4 xfs
mount -t configfs configfs /sys/kernel/config
mkdir -p /etc/target /var/target
echo "InitiatorName=iqn.2026-11.org.example:$lc_name" \
    >/etc/iscsi/initiatorname.iscsi
sed -i -e 's/^node.startup.*/node.startup = manual/' \
    /etc/iscsi/iscsid.conf
cat >/etc/lvm/lvmlocal.conf <<EOF
devices {
    use_devicesfile = 0
    global_filter = [ "a|^/dev/vd[ab]$|", "a|^/dev/mapper/half-[ab]$|", "a|^/dev/loop7$|", "r|.*|" ]
}
EOF
# Cinder's rootwrap: the node's services are root already.
mkdir -p /run/bin
printf '#!/bin/sh\nwhile :; do case $1 in -*) shift;; *rootwrap) shift 2;; *) break;; esac; done\nexec "$@"\n' \
    >/run/bin/sudo
chmod +x /run/bin/sudo
cp $lc_repo/etc/udev/rules.d/*.rules /etc/udev/rules.d/
/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add --subsystem-match=block
udevadm settle --timeout=5
iscsid
for pair in vda:cinder-volumes vdb:stock-volumes; do
    disk=/dev/${pair%%:*} group=${pair##*:}
    if ! blkid -p $disk >/dev/null 2>&1; then
        pvcreate -q $disk && vgcreate -q $group $disk
    fi
done
vgchange -q -ay
export PATH=/run/bin:$PATH PYTHONPATH=$lc_repo PYTHONDONTWRITEBYTECODE=1
# By its name a process sees whether systemd runs the node
# (lab/container/systemd_stand_in.sh).
trap 'printf systemd >/proc/self/comm' USR1
trap 'printf node_init >/proc/self/comm' USR2
/usr/bin/python3 -S $lc_repo/lab/core/agent.py $lc_address &
wait
# The agent never ends by itself; stay, so that the console can be read.
while :; do
    sleep 60 &
    wait $!  # which a signal ends at once
done
