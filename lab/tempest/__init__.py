# SPDX-License-Identifier: Apache-2.0
"""Tempest, OpenStack's own test suite, against a lab.

``venv`` installs it, ``settings`` is its configuration, ``cloud`` makes what
that names, ``suite`` runs the tests, ``results`` is what they say,
``service_logs`` what the volume services say of those that fail, ``kept`` has
those that need not run again, and ``skipped`` reads ``skipped.yaml``: what
cannot run here, each with a reason.
"""
