# SPDX-License-Identifier: Apache-2.0
"""What simulated rooms and real ones have to do alike."""
