#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# machine.sh REPO VENV DEST: make this node one that DevStack has to itself.
# Its first disk becomes DEST, the second one is blank; nothing of the driver
# is configured, and LVM looks at everything.
set -e
repo=$1 venv=$2 dest=$3
for group in cinder-volumes stock-volumes; do
    vgremove -q -ff -y $group
done
pvremove -q -y /dev/vda /dev/vdb
wipefs -q -a /dev/vda /dev/vdb
rm -f /etc/lvm/lvmlocal.conf /etc/udev/rules.d/11-localclone.rules
udevadm control --reload
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
cp "$repo/lab/core/systemctl.sh" "$dest/bin/systemctl"
# The node's services are root already. Unlike the lab's own, this sudo lets
# rootwrap run: its filters are the plugin's work.
cat >"$dest/bin/sudo" <<'END'
#!/bin/sh
while :; do case $1 in -*|*=*) shift;; *) break;; esac; done
case $1 in */systemctl) shift; set -- systemctl "$@";; esac
exec "$@"
END
chmod +x "$dest"/bin/{cinder-localclone,systemctl,sudo}
