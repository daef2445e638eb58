#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1090,SC1091,SC2034,SC2154,SC2329
# devstack_phases.sh stack|unstack|clean: what stack.sh, unstack.sh and clean.sh do with
# a plugin, in their order, by the functions of DevStack in TOP_DIR. What
# reaches further than this node's Cinder is left out or is the lab's.
what=$1
TOP_DIR=$2
FILES=$TOP_DIR/files
LC_ALL=C
export DEST VENV LOGS PATH=$DEST/bin:$PATH

source "$TOP_DIR/functions"
rm -f "$TOP_DIR/.localrc.auto"
extract_localrc_section "$TOP_DIR/local.conf" "$TOP_DIR/localrc" \
    "$TOP_DIR/.localrc.auto"
source "$TOP_DIR/stackrc"
GetDistro
STACK_USER=$(id -un)
CINDER_BACKUP_DRIVER=

function echo_summary {
    echo "== $*"
}

function libraries {
    local lib
    for lib in apache lvm nova cinder; do
        source "$TOP_DIR/lib/$lib"
    done
    CINDER_BIN_DIR=$DEST/bin
    # The lab's, or left out.
    function database_connection_url {
        echo "$DATABASE"
    }
    function iniset_rpc_backend {
        iniset "$2" DEFAULT transport_url "$BUS"
    }
    function configure_keystone_authtoken_middleware {
        :
    }
    function configure_keystoneauth {
        :
    }
    function write_uwsgi_config {
        :
    }
    function remove_uwsgi_config {
        :
    }
    function setup_logging {
        :
    }
    function setup_develop {
        echo "left out: pip install $1"
    }
}

case $what in
    stack)
        set -o errexit
        run_phase override_defaults
        libraries
        run_phase source
        # stack.sh and lib/nova make these.
        mkdir -p "$DATA_DIR" "$NOVA_CONF_DIR"
        run_phase stack pre-install
        configure_cinder
        run_phase stack install
        init_cinder
        run_phase stack post-config
        merge_config_group "$TOP_DIR/local.conf" post-config
        run_process c-vol \
            "$CINDER_BIN_DIR/cinder-volume --config-file $CINDER_CONF"
        run_phase stack extra
        ;;
    test-config)
        set -o errexit
        run_phase override_defaults
        libraries
        load_plugin_settings
        run_phase stack test-config
        ;;
    unstack)
        run_phase override_defaults
        libraries
        load_plugin_settings
        run_phase unstack
        stop_cinder
        cleanup_cinder || true
        clean_lvm_filter
        ;;
    clean)
        libraries
        load_plugin_settings
        run_phase clean
        cleanup_cinder || true
        sudo rm -rf "$CINDER_CONF_DIR" "$NOVA_CONF_DIR" "$DATA_DIR"
        sudo find "$SYSTEMD_DIR" -type f -name '*devstack@*service' -delete
        ;;
esac
echo "phases of $what: done"
