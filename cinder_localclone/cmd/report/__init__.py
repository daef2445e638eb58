# SPDX-License-Identifier: Apache-2.0
"""``cinder-localclone report``: one archive for a bug report.

``command`` is the command. ``parts`` has the contents of the archive, and
``redaction`` removes secrets from all of them.
"""
