# SPDX-License-Identifier: Apache-2.0
"""Output captured from real nodes."""


BUSY = ('0 2097152 clone 8 6/1024 128 3800/16384 32 1 no_discard_passdown '
        '4 hydration_threshold 32 hydration_batch_size 8 rw')
