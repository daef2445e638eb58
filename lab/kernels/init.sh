#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a stock kernel. vda is the source, vdb the destination,
# vdc the metadata. Lines that begin with "lab: " are read by lab/kernels.
# The numbers of the regions are those of content.py. busybox would take its
# own dd, modprobe and the like: hence their paths.
export PATH=/bin:/sbin DM_DISABLE_UDEV=1 LC_ALL=C
busybox mkdir -p /proc /sys /dev /tmp /run
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev
busybox mkdir -p /dev/mapper
for each in $(busybox cat /proc/cmdline); do
    case $each in lc_phase=*) phase=${each#*=};; esac
done
end() {
    echo "lab: $*"
    busybox sync
    busybox poweroff -f
    busybox sleep 60
}
check() {  # WHAT COMMAND...
    what=$1
    shift
    if "$@"; then
        echo "lab: ok $what"
    else
        end "FAILED $what"
    fi
}
write() {  # DEVICE KIND FIRST LAST [FLAG]
    region=$3
    while [ $region -le $4 ]; do
        busybox yes $2-$region | busybox head -c 65536 >/tmp/data
        /bin/dd if=/tmp/data of=/dev/mapper/$1 bs=64k seek=$region count=1 \
            oflag=direct${5:+,$5} conv=notrunc status=none || return 1
        region=$((region + 1))
    done
}
as_written() {  # DEVICE KIND FIRST LAST
    region=$3
    while [ $region -le $4 ]; do
        busybox yes $2-$region | busybox head -c 65536 >/tmp/data
        /bin/dd if=/dev/mapper/$1 bs=64k skip=$region count=1 iflag=direct \
            status=none | busybox cmp -s - /tmp/data || return 1
        region=$((region + 1))
    done
}
partial() {
    region=24
    while [ $region -le 31 ]; do
        busybox yes partial-$region | busybox head -c 4096 >/tmp/data
        /bin/dd if=/tmp/data of=/dev/mapper/clone bs=4k count=1 \
            seek=$((region * 16 + 2)) oflag=direct conv=notrunc \
            status=none || return 1
        region=$((region + 1))
    done
}
same_as_source() {  # REGION
    for each in mapper/clone vda; do
        /bin/dd if=/dev/$each bs=64k skip=$1 count=1 iflag=direct \
            of=/tmp/${each#*/} status=none || return 1
    done
    busybox cmp -s /tmp/clone /tmp/vda
}
hydrated() {  # status: ... METADATA REGION_SIZE HYDRATED/TOTAL HYDRATING ...
    dmsetup status clone | busybox awk '{split($7, n, "/"); print n[1]}'
}
flush() {
    /bin/dd if=/dev/null of=/dev/mapper/clone conv=fsync,notrunc status=none
}
create() {
    dmsetup create clone --table "0 $((64 << 11)) clone /dev/vdc /dev/vdb \
/dev/vda 128 2 no_hydration no_discard_passdown \
4 hydration_threshold 1 hydration_batch_size 1"
}
whole() {
    [ "$(dmsetup status clone | busybox awk '{print $7, $8}')" = \
        "1024/1024 0" ]
}

echo "lab: kernel $(busybox uname -r)"
/sbin/modprobe -a virtio_pci virtio_blk dm-mod
check "dm-clone is loaded: $(/sbin/modinfo -F filename dm-clone)" \
    /sbin/modprobe dm-clone
for each in vda vdb vdc; do
    n=0
    while [ ! -b /dev/$each ] && [ $n -lt 50 ]; do
        busybox sleep 0.1
        n=$((n + 1))
    done
done
check "the disks have a write cache" \
    busybox grep -q "write back" /sys/block/vdb/queue/write_cache

first() {
    check "clone: created on a blank metadata device" create
    check "clone: nothing is copied yet" [ "$(hydrated)" = 0 ]
    check "clone: an uncopied region reads as the source" same_as_source 5
    check "write: whole regions, before the copy" write clone early 8 15
    check "write: parts of regions, before the copy" partial
    before=$(hydrated)
    check "discard: accepted" /bin/blkdiscard -o $((40 * 65536)) \
        -l $((16 * 65536)) /dev/mapper/clone
    check "discard: its regions count as copied" \
        [ "$(hydrated)" = $((before + 16)) ]
    check "write: discarded regions" write clone rewritten 48 55
    check "write: flushed" flush
    dmsetup message clone 0 enable_hydration
    until [ "$(hydrated)" -ge 150 ]; do :; done
    check "write: while it is copied" write clone meanwhile 600 615
    check "write: flushed" flush
    write clone unflushed 700 731
    echo "lab: copied $(hydrated)"
    echo "lab: cut"
    write clone unflushed 732 763
    busybox sleep 60
}

second() {
    check "power cut: the clone is created again" create
    copied=$(hydrated)
    echo "lab: found $copied"
    check "power cut: the copy was under way" [ "$copied" -lt 1024 ]
    check "power cut: whole regions are there" as_written clone early 8 15
    check "power cut: rewritten regions" as_written clone rewritten 48 55
    check "power cut: regions written during the copy" \
        as_written clone meanwhile 600 615
    dmsetup message clone 0 hydration_threshold 32
    dmsetup message clone 0 hydration_batch_size 8
    dmsetup message clone 0 enable_hydration
    check "write: while it is copied again" write clone again 800 807
    n=0
    until whole || [ $n -ge 600 ]; do
        busybox sleep 0.1
        n=$((n + 1))
    done
    check "hydrate: all regions, none under way" whole
    check "write: flushed" flush
    check "cut-over: suspended" dmsetup suspend clone
    check "cut-over: the linear table is loaded" dmsetup load clone \
        --table "0 $((64 << 11)) linear /dev/vdb 0"
    check "cut-over: resumed" dmsetup resume clone
    check "cut-over: the table is in use" [ "$(dmsetup table clone |
        busybox awk '{print $3}')" = linear ]
    check "cut-over: reads as before" as_written clone again 800 807
    check "write: after the cut-over" write clone late 900 903 dsync
    end "done"
}

case $phase in
    1) first;;
    2) second;;
esac
