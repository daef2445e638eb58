# SPDX-License-Identifier: Apache-2.0
"""``make ansible``: the Ansible role makes a node ready; a volume moves."""
