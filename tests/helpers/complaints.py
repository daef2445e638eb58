# SPDX-License-Identifier: Apache-2.0
"""Complaints of simulated parts: each fails its test, whatever caught it."""

_noted: list[str] = []


def note(text: str) -> AssertionError:
    """Note a complaint; return the error to be raised."""
    _noted.append(text)
    return AssertionError(text)


def take() -> list[str]:
    """Return what was noted, and forget it: it was expected."""
    found = _noted[:]
    _noted.clear()
    return found
