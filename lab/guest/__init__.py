# SPDX-License-Identifier: Apache-2.0
"""What runs in a server, or acts as if it did."""
