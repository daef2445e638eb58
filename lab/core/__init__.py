# SPDX-License-Identifier: Apache-2.0
"""Nodes, the control plane, and the installation of both."""
