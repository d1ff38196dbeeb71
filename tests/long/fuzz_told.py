"""The result of `scripts/long fuzz` in a sentence, from what its steps printed.

usage: python -m tests.long.fuzz_told FOLDER
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_PART = re.compile(r"^([\d,]+) requests in ([\d,]+) connections, (\d+) s, (\d+) MiB more(.*)$")
_KEPT = re.compile(r"([\d,]+) acknowledged records all there")


def told(folder: Path) -> str:
    """Raises ValueError where a step left no result."""
    sums = [0, 0, 0]
    grown: list[int] = []
    kept = 0
    for file in sorted(folder.glob("*.txt")):
        if not file.stem.endswith(("-requests", "-open")):
            continue
        match = _PART.match(_last(file))
        if match is None:
            raise ValueError(f"{file} has no result: {_last(file)}")
        for at in range(3):
            sums[at] += int(match[at + 1].replace(",", ""))
        grown.append(int(match[4]))
        kept += sum(int(n.replace(",", "")) for n in _KEPT.findall(match[5]))
    if not grown:
        raise ValueError(f"no part of {folder} has ended")
    return (
        f"{sums[0]:,} requests in {sums[1]:,} connections and {sums[2]:,} s, to {len(grown)} "
        f"brokers that lived on, without a traceback, with at most {max(grown)} MiB more; {kept:,} "
        f"acknowledged records beside them, all there; {_last(folder / 'beside.txt')}; "
        f"{_last(folder / 'files.txt')}"
    )


def _last(file: Path) -> str:
    lines = file.read_text().splitlines()
    return lines[-1] if lines else "nothing"


if __name__ == "__main__":
    print(told(Path(sys.argv[1])))
