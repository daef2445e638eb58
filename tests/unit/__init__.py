# SPDX-License-Identifier: Apache-2.0
from cinder import objects

objects.register_all()
