# SPDX-License-Identifier: Apache-2.0
"""A key manager on a lab: Barbican, which keeps secrets."""
