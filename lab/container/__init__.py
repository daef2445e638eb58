# SPDX-License-Identifier: Apache-2.0
"""A node's volume service in a container, under kolla's conditions."""
