# SPDX-License-Identifier: Apache-2.0
"""The version of the package, for pip, the command and Cinder."""

#: The release, or the next one: a commit after a release raises it.
VERSION = '0.1.0'
