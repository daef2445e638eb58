# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface: each method decides, and calls one module below.

``cinder.conf`` names the class as
``cinder_localclone.driver.LocalCloneDriver``. No other module imports this
package.

:mod:`.driver.driver`
    Volumes, connections, and what the service runs beside them.
:mod:`.groups`, :mod:`.snapshots`, :mod:`.manage`
    The parts of the class for groups, snapshots and images, and the
    management of volumes that exist already.
:mod:`.stats`
    Capabilities and free space, as the scheduler reads them.
"""

from cinder_localclone.driver.driver import LocalCloneDriver

__all__ = ['LocalCloneDriver']
