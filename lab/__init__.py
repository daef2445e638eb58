# SPDX-License-Identifier: Apache-2.0
"""Two real nodes and a control plane on one machine."""

from lab.core.process import LabError
from lab.lab import Lab

__all__ = ['Lab', 'LabError']
