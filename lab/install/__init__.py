# SPDX-License-Identifier: Apache-2.0
"""Installers, each proven by a move of a volume to and from its node.

- ``scenario``: the node before the driver, and what must hold afterwards
- three installers: ``devstack`` (the plugin's phases, by DevStack's own
  functions; ``checkout`` finds what of DevStack they need), ``ansible`` (the
  role), ``page`` (the installation page, word for word; ``page_steps`` reads
  it)
- ``__main__``: the command, for each of them

On a node run ``devstack_machine.sh``, ``devstack_phases.sh`` and
``page_machine.sh``. Neither systemd nor sudo is there: ``stand_ins.sh`` puts
others in their place, ``systemctl.sh`` among them.
"""
