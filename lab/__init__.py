# SPDX-License-Identifier: Apache-2.0
"""Two real nodes and a control plane on one machine."""

from lab.lab import Lab
from lab.process import LabError

__all__ = ['Lab', 'LabError']
