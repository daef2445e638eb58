# SPDX-License-Identifier: Apache-2.0
"""For Nova's scheduler: place servers on the nodes with their volumes.

This runs in ``nova-scheduler``, where Cinder is not installed: nothing here
imports Cinder, directly or indirectly.
"""
