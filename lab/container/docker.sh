#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In place of docker on a node: what the scripts of the installation page ask
# of it, done by container.sh with the image and the mounts of its
# environment.
verb=$1
shift
case $verb in
    inspect) echo "$IMAGE" ;;
    run)
        volumes=$EXTRA
        export IPC_MODE=private PID_MODE=private EXTRA=
        while [[ $1 == -* ]]; do
            case $1 in
                --entrypoint) entrypoint=$2; shift ;;
                --ipc) IPC_MODE=$2; shift ;;
                --pid) PID_MODE=$2; shift ;;
                --volumes-from) EXTRA=$volumes; shift ;;
                --user|--network|--ulimit) shift ;;
                --rm|--init|--privileged) ;;
                *) echo "docker run $1: not here" >&2; exit 125 ;;
            esac
            shift
        done
        if [[ $1 != "$IMAGE" ]]; then
            echo "docker run: no image $1" >&2
            exit 125
        fi
        shift
        exec bash "$(dirname "$(readlink -f "$0")")/container.sh" \
            run "$entrypoint" "$@"
        ;;
    *) echo "docker $verb: not here" >&2; exit 1 ;;
esac
