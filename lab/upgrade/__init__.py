# SPDX-License-Identifier: Apache-2.0
"""``make upgrade FROM=REF``: nodes of two versions side by side, a table."""
