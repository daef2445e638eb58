# SPDX-License-Identifier: Apache-2.0
"""Cinder's driver interface: each method decides, and calls another module.

``cinder.conf`` names the class as
``cinder_localclone.driver.LocalCloneDriver``. No other module imports this
package.

:mod:`.driver.driver`
    Volumes, groups, connections, and the start of the service.
:mod:`.snapshots`, :mod:`.manage`
    The parts of the class for snapshots and images, and for the management of
    existing LVs.
:mod:`.front_end`
    Checks of volumes encrypted by Nova.
:mod:`.extra_specs`
    Extra specs of volume types, as Cinder's API lists them.
:mod:`.stats`
    Capabilities and free space, as the scheduler reads them.
"""

from cinder_localclone.driver.driver import LocalCloneDriver

__all__ = ['LocalCloneDriver']
