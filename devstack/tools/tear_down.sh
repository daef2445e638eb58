#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tear_down.sh GROUP [KEEP]
# Remove all volumes of a volume group from this node, with what stands on
# them: exports, iSCSI sessions, device-mapper devices, LVs. For root, when
# neither cinder-volume nor guests run any more.
#
# Everything goes by its name, so nothing of anybody else is touched. Volumes
# whose ids are in the file KEEP stay.
#
# Exits with 1 if something is left, and says what.

group=$1
keep=${2:-/dev/null}
TARGET=${LOCALCLONE_CONFIGFS:-/sys/kernel/config/target}
LINKS=${LOCALCLONE_LINKS:-/dev/localclone}
HEX='[0-9a-f]{8}'
ID="$HEX-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
EXPORT="(localclone-$ID|volume-$ID-$HEX|remote-$ID-$HEX-$HEX-$HEX)"
DEVICE="localclone-(clone-|source-|absent-|guard-|export-)?$ID"
CRYPT="localclone-crypt-$ID"
# The LV of a deleted volume: it still has the data.
TO_WIPE="localclone-wipe-$HEX-[0-9a-f]{12}"
# What cryptsetup has below it: for tags, and while it re-encrypts.
PART="(_dif|-overlay|-hotzone-(for|back)ward)"

# kept name: whether it is of a volume that stays
function kept {
    if [[ $1 =~ $ID ]]; then
        grep -q -- "${BASH_REMATCH[0]}" "$keep"
    else
        grep -qxF -- "$1" "$keep"
    fi
}

function exports {
    local path iqn
    for path in "$TARGET"/iscsi/iqn.*; do
        iqn=${path##*/}
        if [[ -d $path && $iqn =~ $EXPORT$ ]]; then
            kept "$iqn" || echo "$path"
        fi
    done
}

# remove_export path: in the order in which configfs lets go
function remove_export {
    local tpg lun
    for tpg in "$1"/tpgt_*; do
        echo 0 >"$tpg/enable"
        for lun in "$tpg"/acls/*/lun_* "$tpg"/lun/lun_*; do
            if [[ -d $lun ]]; then
                find "$lun" -maxdepth 1 -type l -delete
                rmdir "$lun"
            fi
        done
        for lun in "$tpg"/acls/* "$tpg"/np/*; do
            if [[ -d $lun ]]; then
                rmdir "$lun"
            fi
        done
        rmdir "$tpg"
    done
    rmdir "$1"
}

function backstores {
    local path name
    for path in "$TARGET"/core/iblock_*/localclone-*; do
        name=${path##*/}
        if [[ -d $path && $name =~ ^localclone-(source-)?$ID$ ]]; then
            kept "$name" || echo "$path"
        fi
    done
}

# of: "node" (records) or "session"; the names of targets
function imported {
    local iqn
    iscsiadm -m "$1" 2>/dev/null | grep -o 'iqn\.[^ ]*' | sort -u |
        while read -r iqn; do
            if [[ $iqn =~ $EXPORT$ ]]; then
                kept "$iqn" || echo "$iqn"
            fi
        done
}

# is_own name uuid
function is_own {
    case $2 in
        "LOCALCLONE-$1") [[ $1 =~ ^$DEVICE$ ]] ;;
        CRYPT-LUKS?-*-"$1") [[ $1 =~ ^$CRYPT$ ]] ;;
        CRYPT-INTEGRITY-*-"$1"|CRYPT-SUBDEV-*-"$1")
            [[ $1 =~ ^$CRYPT$PART$ ]]
            ;;
        *) return 1 ;;
    esac
}

function devices {
    local name uuid
    dmsetup info -c --noheadings --separator ' ' -o name,uuid 2>/dev/null |
        while read -r name uuid; do
            if is_own "$name" "$uuid"; then
                kept "$name" || echo "$name"
            fi
        done
}

# stop_reencryptions: they have their volumes open
function stop_reencryptions {
    local name
    for name in $(devices); do
        if [[ $name =~ ^$CRYPT$ ]]; then
            name=${name/crypt/reencrypt}.service
            systemctl stop "$name" 2>/dev/null
        fi
    done
}

# remove_devices: what stands on another goes before that
function remove_devices {
    local before="" now name
    now=$(devices)
    while [[ -n $now && $now != "$before" ]]; do
        before=$now
        for name in $now; do
            timeout 60 dmsetup remove --retry "$name" 2>/dev/null
        done
        now=$(devices)
    done
}

function lvs_of_volumes {
    local name
    local of_volume="(volume-|_snapshot-|localclone-meta-)$ID"
    for name in $(lvs --noheadings -o lv_name "$group" 2>/dev/null); do
        if [[ $name =~ ^($of_volume|$TO_WIPE)$ ]]; then
            kept "$name" || echo "$name"
        fi
    done
}

for path in $(exports); do
    remove_export "$path"
done
for path in $(backstores); do
    rmdir "$path"
    rmdir "${path%/*}" 2>/dev/null
done
# Before the devices that stand on imported disks: one whose source does not
# answer would hang.
for iqn in $(imported session); do
    iscsiadm -m node -T "$iqn" --logout
done
for iqn in $(imported node); do
    iscsiadm -m node -T "$iqn" -o delete
done
stop_reencryptions
remove_devices
for link in "$LINKS"/*; do
    if [[ -L $link && ${link##*/} =~ ^$ID$ ]]; then
        kept "$link" || rm -f "$link"
    fi
done
for name in $(lvs_of_volumes); do
    lvremove --yes --force "$group/$name"
done

left=$(exports; backstores; imported session; devices; lvs_of_volumes)
if [[ -n $left ]]; then
    echo "Of the volumes of $group there is left:"
    echo "$left"
    exit 1
fi
