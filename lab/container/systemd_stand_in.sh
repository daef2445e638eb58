#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# systemd_stand_in.sh begin|end: on a node, which systemd does not run, what
# a container meets of the systemd of its host: the name of process 1, the
# directory by which it is known, and a manager that starts units for
# systemd-run (systemd_run.sh in the image), each in its own cgroup.
directory=/run/systemd
requests=$directory/stand-in
cgroups=/sys/fs/cgroup

unit() {  # NAME OUTPUT ENVIRONMENT... -- WORDS...
    local name=$1 output=$2
    local -a given=()
    shift 2
    while [[ $1 != -- ]]; do
        given+=("$1")
        shift
    done
    shift
    mkdir -p "$cgroups/system.slice/$name"
    (
        echo "$BASHPID" >"$cgroups/system.slice/$name/cgroup.procs"
        cd /
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin \
            "${given[@]}" setsid "$@" >"$output" </dev/null
    )
    rmdir "$cgroups/system.slice/$name"
}

case $1 in
    begin)
        mkdir -p $directory/system
        mountpoint -q $cgroups || mount -t cgroup2 cgroup2 $cgroups
        kill -USR1 1  # see lab/core/node_init.sh
        mkfifo $requests
        echo $$ >$directory/stand-in.pid
        exec 3<>$requests
        while read -r -u 3 line; do
            eval "unit $line" &
        done
        ;;
    end)
        kill "$(<$directory/stand-in.pid)"
        kill -USR2 1
        rm -rf $directory/system $requests
        ;;
esac
