# SPDX-License-Identifier: Apache-2.0
from tests.helpers import unit

unit.prepare()
