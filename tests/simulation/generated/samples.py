"""The sample of the mutants, and the interval of a share that is measured on it.

Each pair of room and rule is a stratum, and has its part of the sample by its size, so the share in
the sample is an unbiased estimate of the share of all.  Within a stratum the order is that of a
hash of the seed and the mutant's id: so the choice is random, and a change of one file changes only
few of the others.  The same hash orders the whole sample, so that what has been run of it at any
time is a random part.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence

from tests.simulation.generated.maker import Made

SIZE = 300
SEED = 23
Z = 1.959964
"""Of 95 %."""


def sample(mutants: Sequence[Made], size: int = SIZE, seed: int = SEED) -> list[Made]:
    """A stratified sample, in random order."""
    strata: dict[tuple[str, str], list[Made]] = defaultdict(list)
    for made in mutants:
        strata[made.room, made.rule].append(made)
    sizes = shares({stratum: len(members) for stratum, members in strata.items()}, size)
    chosen = [
        made
        for stratum, members in strata.items()
        for made in sorted(members, key=lambda m: _order(m, seed))[: sizes[stratum]]
    ]
    return sorted(chosen, key=lambda m: _order(m, seed))


def shares(sizes: dict[tuple[str, str], int], total: int) -> dict[tuple[str, str], int]:
    """Parts of the total in proportion to the sizes, by the largest remainders."""
    whole = sum(sizes.values())
    total = min(total, whole)
    exact = {key: total * size / whole for key, size in sizes.items()}
    parts = {key: int(value) for key, value in exact.items()}
    left = total - sum(parts.values())
    for key in sorted(exact, key=lambda k: (parts[k] - exact[k], str(k)))[:left]:
        parts[key] += 1
    return parts


def wilson(found: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson."""
    if not of:
        return 0.0, 1.0
    share = found / of
    middle = share + Z * Z / (2 * of)
    width = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    scale = 1 + Z * Z / of
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)


def _order(made: Made, seed: int) -> str:
    return hashlib.sha256(f"{seed} {made.id}".encode()).hexdigest()
