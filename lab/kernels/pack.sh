#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the root file system of a release: put what a kernel's first process needs
# into an archive.  pack.sh KERNEL INIT DIRECTORY
set -e
kernel=$1 init=$2 out=$3
tree=$(mktemp -d)
mkdir -p "$tree/bin" "$tree/sbin" "$tree/lib" "$tree/usr" "$out"
ln -s ../bin ../lib "$tree/usr/"
for program in busybox dd blkdiscard dmsetup kmod; do
    path=$(command -v $program)
    cp -L "$path" "$tree/bin/$program"
    ldd "$path" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$tree${library%/*}"
        cp -L "$library" "$tree$library"
    done
done
for name in modprobe modinfo; do
    ln -s ../bin/kmod "$tree/sbin/$name"
done
for module in virtio_pci virtio_blk dm-mod dm-clone libcrc32c crc32c_generic \
    crc32c_intel; do
    modprobe -S "$kernel" -D $module 2>/dev/null | grep -o '/[^ ]*' || true
done | sort -u | while read -r file; do
    mkdir -p "$tree${file%/*}"
    cp "$file" "$tree$file"
done
cp "/lib/modules/$kernel/"modules.builtin* \
    "/lib/modules/$kernel/modules.order" "$tree/lib/modules/$kernel/"
depmod -b "$tree" "$kernel"
cp "$init" "$tree/init"
chmod +x "$tree/init"
(cd "$tree" && find . | cpio -o --quiet -H newc | gzip -1) >"$out/initrd"
cp "/boot/vmlinuz-$kernel" "$out/vmlinuz"
rm -rf "$tree"
