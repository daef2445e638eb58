# SPDX-License-Identifier: Apache-2.0
"""``make install-page``: a node is installed as the page says, word for word.

``page`` reads the steps out of the documentation, ``__main__`` does them on a
node that has nothing of the driver; a volume moves.
"""
