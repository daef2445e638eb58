#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is asked of systemctl, on a node where systemd does not run: a
# service that units in /etc/systemd/system describe, drop-ins included.
units=/etc/systemd/system
state=/run/devstack-units
mkdir -p $state
verb=$1
unit=${!#}
[[ $unit == *.service ]] || unit=$unit.service
file=$units/$unit

# lines KEY: its values; an empty one forgets those before it
function lines {
    local line
    local -a values=()
    while read -r line; do
        line=${line#*=}
        line=${line# }
        if [[ -n $line ]]; then
            values+=("$line")
        else
            values=()
        fi
    done < <(cat "$file" "$file".d/*.conf 2>/dev/null | grep -E "^$1 *=")
    printf '%s\n' "${values[@]}"
}

# run COMMAND: as systemd would; a leading "-" says that it may fail
function run {
    local command=${1//'$$'/'$'} code
    bash -c "${command#-}" && return 0
    code=$?
    [[ $command == -* ]] || return $code
}

function start {
    local command
    [[ -e $file ]] || return 0  # a daemon that the node has started itself
    if [[ -e $state/$unit.pid ]] && kill -0 "$(<"$state/$unit.pid")"; then
        return 0
    elif [[ $(lines Type) == oneshot ]]; then
        while read -r command; do
            run "$command" || return
        done < <(lines ExecStart)
    else
        command=$(lines ExecStart)
        # shellcheck disable=SC2086
        PATH=$DEST/bin:$VENV/bin:$PATH setsid $command \
            >>"$LOGS/$(hostname).$unit.log" 2>&1 </dev/null &
        echo $! >"$state/$unit.pid"
    fi
    touch "$state/$unit.started"
}

function stop {
    local pid=$state/$unit.pid command
    if [[ -e $pid ]]; then
        kill -- -"$(<"$pid")" 2>/dev/null
        for _ in $(seq 150); do
            kill -0 -- -"$(<"$pid")" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL -- -"$(<"$pid")" 2>/dev/null
        rm "$pid"
    elif [[ -e $state/$unit.started ]]; then
        command=$(lines ExecStop)
        [[ -z $command ]] || run "$command"
    fi
    rm -f "$state/$unit.started"
    return 0
}

case $verb in
    daemon-reload) ;;
    is-enabled) [[ -e $state/$unit.enabled ]] ;;
    enable|disable)
        # A unit that is not there can't be enabled.
        [[ $verb == disable || -e $file ]] || exit 1
        if [[ $verb == enable ]]; then
            touch "$state/$unit.enabled"
            [[ $* != *--now* ]] || start
        else
            rm -f "$state/$unit.enabled"
            [[ $* != *--now* ]] || stop
        fi
        ;;
    start) start ;;
    stop) stop ;;
    restart) stop && start ;;
    *) echo "systemctl $*: not on this node" >&2; exit 1 ;;
esac
