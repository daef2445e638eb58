#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# DevStack sources this file in each phase: plugin.sh MODE [PHASE]. The
# functions are in lib; DevStack's lib/cinder calls three of lib/localclone by
# the backend's type (configure_, init_ and cleanup_cinder_backend_...).

# Save trace setting
_XTRACE_LOCALCLONE=$(set +o | grep xtrace)
set +o xtrace

# shellcheck source=devstack/lib/made
source "$LOCALCLONE_DIR/devstack/lib/made"
# shellcheck source=devstack/lib/groups
source "$LOCALCLONE_DIR/devstack/lib/groups"
# shellcheck source=devstack/lib/localclone
source "$LOCALCLONE_DIR/devstack/lib/localclone"

case "$1 $2" in
    "stack pre-install") prepare_localclone ;;
    "stack install") install_localclone ;;
    "stack post-config") configure_localclone ;;
    "stack test-config") check_localclone ;;
    "unstack "*) stop_localclone ;;
    "clean "*) clean_localclone ;;
esac

# Restore xtrace
$_XTRACE_LOCALCLONE
