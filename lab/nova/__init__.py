# SPDX-License-Identifier: Apache-2.0
"""Nova on a lab: control plane, hypervisors, servers."""
