"""Whole runs of scripts/test, alone on the machine and beside a busy core: each red is a bug of a
test or of the product.

usage: python -m tests.long.greens run quiet|busy [PATH ...] | total FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPIN = "while True: pass"


def run(how: str, *paths: str) -> int:
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN])] if how == "busy" else []
    try:
        return subprocess.run([ROOT / "scripts" / "test", *paths], cwd=ROOT).returncode
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def total(folder: Path) -> None:
    """One line: how each run ended, and what was red."""
    told = []
    for file in sorted(folder.glob("*-[0-9].txt")):
        lines = file.read_text().splitlines()
        reds = sorted({line.split()[1] for line in lines if line.startswith("FAILED ")})
        last = next((line for line in reversed(lines) if line.startswith("test: ")), "cut off")
        told.append(f"{file.stem}: {last.removeprefix('test: ')}{''.join(f', {r}' for r in reds)}")
    print("; ".join(told))


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "run":
        sys.exit(run(*words))
    total(Path(words[0]))
