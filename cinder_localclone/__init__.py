# SPDX-License-Identifier: Apache-2.0
"""Node-local Cinder volumes that follow their instances."""
