#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In an image, what systemd-run does with the options that the driver gives:
# it has the host's manager start a unit (systemd_stand_in.sh).
declare -a given=()
while [[ $1 == --* ]]; do
    case $1 in
        --unit) name=$2; shift ;;
        --property=StandardOutput=file:*) output=${1#*=file:} ;;
        --setenv=*) given+=("${1#*=}") ;;
    esac
    shift
done
# systemd-run looks for the program where itself runs.
[[ -x $1 ]] || { echo "Failed to find executable $1" >&2; exit 1; }
printf '%s\n' "$(printf '%q ' "$name" "$output" "${given[@]}" -- "$@")" \
    >/run/systemd/stand-in
