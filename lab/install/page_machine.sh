#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# page_machine.sh VENV CHECKOUT WHEELS DIRECTORY: what whoever deploys OpenStack has
# done on a hypervisor: Cinder in /opt/cinder, its configuration in
# /etc/cinder, a unit. The node has no network: pip finds in WHEELS what the
# driver is built with. DIRECTORY gets the checkout.
set -e
venv=$1 checkout=$2 wheels=$3 directory=$4
here=$(dirname "$0")
mount -t tmpfs tmpfs /opt
mkdir -p /root "$directory"
python3 -m venv /opt/cinder
# Cinder itself is the lab's.
packages=$(echo "$venv"/lib/python3*/site-packages)
echo "$packages" >"$(echo /opt/cinder/lib/python3*/site-packages)/cinder.pth"
for program in cinder-volume cinder-rootwrap privsep-helper; do
    sed '1s|.*|#!/opt/cinder/bin/python|' "$venv/bin/$program" \
        >/opt/cinder/bin/$program
    chmod +x /opt/cinder/bin/$program
done
cat >/etc/pip.conf <<END
[global]
no-index = true
find-links = $wheels
disable-pip-version-check = true
END
mkdir -p /etc/cinder /etc/systemd/system
cp -r "$venv"/etc/cinder/rootwrap.* /etc/cinder/
sed -i -e 's|^filters_path.*|filters_path=/etc/cinder/rootwrap.d|' \
    -e 's|^exec_dirs=|exec_dirs=/opt/cinder/bin,|' /etc/cinder/rootwrap.conf
cat >/etc/systemd/system/cinder-volume.service <<'END'
[Service]
ExecStart=/opt/cinder/bin/cinder-volume --config-file /etc/cinder/cinder.conf
END
bash "$here/stand_ins.sh" /run/bin
cp -r "$checkout/." "$directory"
