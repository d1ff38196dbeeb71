"""The only module that makes generators of random numbers."""

from __future__ import annotations

from random import Random, SystemRandom

__all__ = ["Random", "seeded", "unpredictable"]


def seeded(*parts: object) -> Random:
    """A generator that gives the same numbers for the same parts, in every process.

    (A text seeds through SHA-512, so hash randomisation has no effect.)
    """
    return Random("/".join(str(part) for part in parts))


def unpredictable() -> Random:
    """A generator seeded by the operating system."""
    return Random(SystemRandom().getrandbits(64))
