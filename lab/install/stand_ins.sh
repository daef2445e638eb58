#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# stand_ins.sh DIRECTORY: put what a node lacks into a directory of its PATH:
# systemctl, and a sudo that, unlike the lab's own, lets rootwrap run: its
# filters are a part of what is installed. The node's services are root
# already.
set -e
bin=$1
mkdir -p "$bin"
cp "$(dirname "$0")/systemctl.sh" "$bin/systemctl"
cat >"$bin/sudo" <<'END'
#!/bin/sh
while :; do case $1 in -*|*=*) shift;; *) break;; esac; done
case $1 in */systemctl) shift; set -- systemctl "$@";; esac
exec "$@"
END
chmod +x "$bin/systemctl" "$bin/sudo"
