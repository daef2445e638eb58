# SPDX-License-Identifier: Apache-2.0
"""The pages' source, and the backend of which their examples are made."""

import sys

from tests.helpers import tree

DOC = tree.ROOT / 'doc/source'
sys.path.insert(0, str(DOC / '_ext'))
import sample_backend as sample  # noqa: E402, F401
