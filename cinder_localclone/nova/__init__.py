# SPDX-License-Identifier: Apache-2.0
"""For Nova's scheduler: servers go where their volumes are.

It runs in ``nova-scheduler``, where Cinder is not installed: nothing here
imports Cinder, nor what does.
"""
