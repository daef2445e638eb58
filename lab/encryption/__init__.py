# SPDX-License-Identifier: Apache-2.0
"""``make encryption``: encrypted volumes, with real Nova and Barbican.

The same story twice: of volumes that Nova encrypts, and of those that the
driver does.

- ``story``: both ways, and a lab that is as it was afterwards
- ``chapter``: the steps of one way; ``by_driver``: more of the other
- ``watching``: what others see meanwhile on the link and on the disks
"""
