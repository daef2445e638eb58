# SPDX-License-Identifier: Apache-2.0
"""A node's volume service in a container, under kolla's conditions.

:mod:`.container` starts, replaces and enters it; ``container.sh`` runs on the
node and makes it. :mod:`.conf` is its configuration. ``docker.sh`` and
``systemd_stand_in.sh`` with ``systemd_run.sh`` stand for what a node lacks.
"""
