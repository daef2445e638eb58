# SPDX-License-Identifier: Apache-2.0
"""Nodes, control plane and what is installed for them."""
