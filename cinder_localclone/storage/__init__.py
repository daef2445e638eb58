# SPDX-License-Identifier: Apache-2.0
"""This node's LVM, device-mapper, iSCSI and cryptsetup.

:class:`.logical_volumes.Lvm`, :class:`.handles.Handles`,
:class:`.clones.Clones`, :class:`.iscsi_target.Exports`,
:class:`.iscsi_initiator.Sessions` and :class:`.storage.cryptsetup.Cryptsetup`
implement the interfaces of :mod:`.core.interfaces`, which document them. The
service and the operator's command create them. :mod:`.prerequisites` answers
doctor where no service can start. :mod:`.storage.privsep` runs the commands;
only this package and the service import it.
"""
