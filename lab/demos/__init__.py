# SPDX-License-Identifier: Apache-2.0
"""What is shown to somebody: steps, checks, a table."""
