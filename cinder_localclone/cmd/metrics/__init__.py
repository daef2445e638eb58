# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone metrics``: what a node exports.

``sources`` reads, ``figures`` makes metrics of that, prometheus_client prints
them; ``command`` is the command.
"""
