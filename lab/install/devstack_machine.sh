#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# devstack_machine.sh REPO VENV DEST: make this node, whose disks are blank, one
# that DevStack has to itself. Its first disk becomes DEST.
set -e
repo=$1 venv=$2 dest=$3
mkdir -p "$dest" /etc/nova /etc/sudoers.d
mkfs.ext4 -q -E nodiscard /dev/vda
mount /dev/vda "$dest"
mkdir -p "$dest/bin" "$dest/local/bin" "$dest/data" "$dest/cinder/etc"
# The plugin and Cinder, where DevStack would have cloned them.
ln -s "$repo" "$dest/cinder-localclone"
ln -s "$venv/etc/cinder" "$dest/cinder/etc/cinder"
# What pip would have installed into one directory.
for program in cinder-rootwrap cinder-rtstool cinder-volume privsep-helper; do
    ln -s "$venv/bin/$program" "$dest/bin/$program"
done
cat >"$dest/bin/cinder-localclone" <<END
#!/bin/sh
exec $venv/bin/python -W ignore -m cinder_localclone.cmd.main "\$@"
END
chmod +x "$dest/bin/cinder-localclone"
bash "$repo/lab/install/stand_ins.sh" "$dest/bin"
