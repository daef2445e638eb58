# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone node``: the nodes of a backend.

``boot`` makes the volumes of this node available before Nova starts, without
the database. The other modules work with the records of all nodes.
"""
