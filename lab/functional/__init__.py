# SPDX-License-Identifier: Apache-2.0
"""The functional tests, some classes at a time, each worker in its labs.

- ``queue``: which class of tests a worker takes next; pure
- ``worker``: runs classes of tests as it is told
- ``__main__``: finds the tests, starts the workers, shows what they report
"""
