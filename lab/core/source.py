# SPDX-License-Identifier: Apache-2.0
"""The working tree that a lab runs."""

import subprocess


def commit_of(repo):
    """The commit of a working tree; with a "+" if files differ from it."""
    def git(*words):
        return subprocess.run(
            ['git', '-C', str(repo), *words], text=True, timeout=60,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()
    try:
        return git('rev-parse', '--short=12', 'HEAD') + (
            '+' if git('status', '--porcelain', '-uno') else '')
    except OSError:
        return ''
