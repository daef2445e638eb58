#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Containers of a node, made by hand: a root of their own, namespaces of their
# own, and the mounts that kolla-ansible gives to cinder_volume
# (ansible/roles/cinder/defaults/main.yml of openstack/kolla-ansible 1a68181).
#
# container.sh image NAME VENV REPO   make an image, which has the driver
# container.sh remove NAME            remove an image
# container.sh start PID_FILE         start the service as user cinder
# container.sh exec PID WORDS...      run a command in it, as root
# container.sh run WORDS...           run a command in a container of its own
#
# The environment of start and run: IMAGE, CONFIG (the directory with
# cinder.conf), PID_MODE and IPC_MODE (host or private), EXTRA (lines
# SOURCE:TARGET[:ro]: cinder_volume_extra_volumes).
set -e
HERE=$(dirname "$(readlink -f "$0")")
STORE=/tmp/containers
VENV_IN=/var/lib/kolla/venv
CGROUPS=/sys/fs/cgroup
export PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin

overlay() {  # LOWER TARGET
    local beside=$STORE/layers/${2//\//_}
    mkdir -p "$2" "$beside/upper" "$beside/work"
    mount -t overlay overlay \
        -o "lowerdir=$1,upperdir=$beside/upper,workdir=$beside/work" "$2"
}

image() {
    local name=$1 venv=$2 repo=$3 root=$STORE/$1 packages each
    mkdir -p "$root"/root/{dev,proc,sys,run,tmp,usr,old,root} \
        "$root"/root/etc/{cinder,lvm,pam.d,target,udev/rules.d,iscsi} \
        "$root"/root/var/{lib/kolla/venv,lib/kolla/config_files,tmp,log/kolla}
    chmod 1777 "$root"/root/tmp "$root"/root/var/tmp
    ln -s usr/bin usr/sbin usr/lib usr/lib64 "$root/root/"
    ln -s ../run "$root/root/var/run"
    # As in kolla's images of Debian: neither systemd nor udev's daemon, and
    # none of the host's rules.
    overlay /usr "$root/usr"
    rm -rf "$root"/usr/bin/systemd* "$root"/usr/bin/systemctl \
        "$root"/usr/lib/systemd "$root"/usr/lib/udev/rules.d \
        "$root"/usr/bin/python3* "$root"/usr/lib/tmpfiles.d
    # The interpreter is an image's own one.
    cp -a /usr/bin/python3* "$root/usr/bin/"
    # Images of other distributions have the package systemd.
    if [[ $name == *-systemd ]]; then
        cp /usr/bin/systemd-creds "$root/usr/bin/"
        install -m 755 "$HERE/systemd_run.sh" "$root/usr/bin/systemd-run"
    fi
    overlay "$venv" "$root/venv"
    for each in cinder-volume cinder-rootwrap privsep-helper; do
        sed "1s|.*|#!$VENV_IN/bin/python|" "$venv/bin/$each" \
            >"$root/venv/bin/$each.new"
        chmod +x "$root/venv/bin/$each.new"
        mv "$root/venv/bin/$each.new" "$root/venv/bin/$each"
    done
    # What "pip install" puts there.
    packages=$(echo "$root"/venv/lib/python3*/site-packages)
    cp -r "$repo/cinder_localclone" "$packages/"
    mkdir -p "$root/venv/lib/udev/rules.d"
    cp "$repo"/etc/udev/rules.d/*.rules "$root/venv/lib/udev/rules.d/"
    printf '%s\n' "#!$VENV_IN/bin/python" 'import sys' \
        'from cinder_localclone.cmd import main' 'sys.exit(main.main())' \
        >"$root/venv/bin/cinder-localclone"
    chmod +x "$root/venv/bin/cinder-localclone"
    # /etc: what the packages of the image bring, nothing of the host's.
    local etc=$root/root/etc
    printf '%s\n' root:x:0:0:root:/root:/bin/bash \
        cinder:x:42407:42407::/var/lib/cinder:/usr/sbin/nologin >"$etc/passwd"
    printf '%s\n' root:x:0: disk:x:6: cinder:x:42407: \
        kolla:x:42400:cinder >"$etc/group"
    printf '%s\n' 'ID=imaginary' 'VERSION_ID="1"' \
        'PRETTY_NAME="the image"' >"$etc/os-release"
    echo 'auth sufficient pam_permit.so
account sufficient pam_permit.so
session sufficient pam_permit.so' >"$etc/pam.d/su"
    printf 'devices {\n}\n' >"$etc/lvm/lvm.conf"
    echo 'InitiatorName=iqn.2026-11.org.example:the-image' \
        >"$etc/iscsi/initiatorname.iscsi"
    echo '127.0.0.1 localhost' >"$etc/hosts"
    cp /etc/ld.so.cache "$etc/"
    ln -s /proc/self/mounts "$etc/mtab"
    cp -r "$venv"/etc/cinder/rootwrap.* "$etc/cinder/"
    cp "$repo"/etc/cinder/rootwrap.d/*.filters "$etc/cinder/rootwrap.d/"
    sed -i -e 's|^filters_path.*|filters_path=/etc/cinder/rootwrap.d|' \
        -e "s|^exec_dirs=.*|exec_dirs=$VENV_IN/bin,/sbin,/usr/sbin,/bin,/usr/bin|" \
        "$etc/cinder/rootwrap.conf"
    # sudo is not on this machine: su, and what kolla's sudoers allow.
    mkdir -p "$root/root/opt/bin"
    cat >"$root/root/opt/bin/sudo" <<'END'
#!/bin/bash
[[ $1 != -E ]] || shift
[[ $EUID != 0 ]] || exec "$@"
[[ $1 != cinder-rootwrap ]] || set -- /var/lib/kolla/venv/bin/"$@"
if [[ $1 != /var/lib/kolla/venv/bin/cinder-rootwrap ||
        $2 != /etc/cinder/rootwrap.conf ]]; then
    echo "sudo: not allowed: $*" >&2
    exit 1
fi
exec su root -s /bin/bash -c 'exec "$@"' -- bash "$@"
END
    chmod +x "$root/root/opt/bin/sudo"
    touch "$root/complete"
}

remove() {
    local each
    for each in usr venv; do
        umount -l "$STORE/$1/$each"
        rm -rf "$STORE/layers/${STORE//\//_}_$1_$each"
    done
    rm -rf "${STORE:?}/$1"
}

# In the container's mount namespace, before its root is the root.
enter() {
    local root each source target mode
    [[ -z $CGROUP ]] || echo $$ >"$CGROUP/cgroup.procs"
    root=$STORE/container  # seen in this namespace only
    mkdir -p "$root"
    mount -t tmpfs tmpfs "$root"
    mkdir "$root"/{upper,work,root}
    mount -t overlay overlay -o \
        "lowerdir=$STORE/$IMAGE/root,upperdir=$root/upper,workdir=$root/work" \
        "$root/root"
    root=$root/root
    mount --bind "$STORE/$IMAGE/usr" "$root/usr"
    mount --bind "$STORE/$IMAGE/venv" "$root$VENV_IN"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    # kolla-ansible's, in the order of their targets.
    mkdir -p $STORE/volumes/{cinder,kolla_logs} "$root/var/lib/cinder"
    printf '%s\n' /dev:/dev /run:/run /lib/modules:/usr/lib/modules:ro \
        "$CONFIG:/var/lib/kolla/config_files:ro" \
        $STORE/volumes/cinder:/var/lib/cinder /etc/iscsi:/etc/iscsi \
        $STORE/volumes/kolla_logs:/var/log/kolla "$EXTRA" | sort -t: -k2 |
        while IFS=: read -r source target mode; do
            [[ -n $source ]] || continue
            [[ -e $source ]] || mkdir -p "$source"  # as engines do
            if [[ -d $source ]]; then
                mkdir -p "$root$target"
            elif [[ ! -e $root$target ]]; then
                mkdir -p "$(dirname "$root$target")"
                touch "$root$target"
            fi
            mount --rbind "$source" "$root$target"
            [[ $mode != ro ]] || mount -o remount,ro,bind "$root$target"
        done
    mkdir -p "$root/old"
    cd "$root"
    pivot_root . old
    mount --make-rprivate /old  # or mounts below the node's /run would go
    umount -l /old
    cd /
    export PATH=$VENV_IN/bin:/opt/bin:$PATH PYTHONDONTWRITEBYTECODE=1
    unset PYTHONPATH
}

# "dumb-init --single-child": what is told to it, it tells its child; what is
# left when that has ended, the kernel kills.
init() {
    local child
    trap 'kill -TERM $child' TERM
    "$@" &
    child=$!
    while kill -0 $child 2>/dev/null; do
        wait $child && code=0 || code=$?
    done
    exit $code
}

unshared() {
    local namespaces=(--mount --propagation unchanged --uts) code=0
    mount --make-rshared /run
    [[ $IPC_MODE == host ]] || namespaces+=(--ipc)
    if [[ $PID_MODE != host ]]; then
        exec unshare "${namespaces[@]}" --pid --fork --kill-child \
            bash "$HERE/container.sh" "$@"
    fi
    # With the PID namespace of the host, an engine kills what is left in the
    # container's cgroup when the first process has ended.
    mountpoint -q $CGROUPS || mount -t cgroup2 cgroup2 $CGROUPS
    local cgroup=$CGROUPS/container-$BASHPID
    mkdir "$cgroup"
    CGROUP=$cgroup unshare "${namespaces[@]}" \
        bash "$HERE/container.sh" "$@" || code=$?
    echo 1 >"$cgroup/cgroup.kill"
    until rmdir "$cgroup" 2>/dev/null; do sleep 0.1; done
    exit $code
}

verb=$1
shift
case $verb in
    image) [[ -e $STORE/$1/complete ]] || image "$@" ;;
    remove) remove "$@" ;;
    start) unshared begin "$1" ;;
    begin)
        # Its pid as the host sees it, and a group of its own.
        [[ $2 == session ]] ||
            exec setsid --wait bash "$HERE/container.sh" begin "$1" session
        read -r pid _ </proc/self/stat
        echo "$pid" >"$1.new"
        mv "$1.new" "$1"
        enter
        # kolla_set_configs and kolla_extend_start
        cp /var/lib/kolla/config_files/cinder.conf /etc/cinder/cinder.conf
        chown 42407:42400 /var/lib/cinder /etc/cinder/cinder.conf
        chmod 2775 /var/lib/cinder
        chown -R 42407:42400 /etc/iscsi
        chmod 0600 /etc/cinder/cinder.conf
        chmod 2775 /etc/iscsi
        init setpriv --reuid=42407 --regid=42407 --groups=42400,6 \
            cinder-volume --config-file /etc/cinder/cinder.conf
        ;;
    run) unshared once "$@" ;;
    once)
        enter
        init "$@"
        ;;
    exec)
        pid=$1
        shift
        exec nsenter --target "$pid" --mount --uts --ipc --pid env -u \
            PYTHONPATH PATH=$VENV_IN/bin:/opt/bin:$PATH \
            PYTHONDONTWRITEBYTECODE=1 "$@"
        ;;
esac
