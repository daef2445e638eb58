# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone metrics``: the metrics of a node.

``sources`` reads values, ``figures`` makes metrics from them, and
prometheus_client prints the metrics. ``command`` is the command.
"""
