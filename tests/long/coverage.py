"""What 2,400 seeds reach, at this commit and before the simulation had most of its workloads.

Twenty-four sets of flags, 100 seeds each: none, each flag alone, and some together.  A commit that
lacks a flag runs the set without it.  No two sets have a seed in common.

usage: python -m tests.long.coverage part FOLDER NUMBER [COMMIT] [SEEDS]
       python -m tests.long.coverage page FOLDER
       python -m tests.long.coverage total FOLDER

The first runs one set, of this tree or of a commit of its history; its log and coverage go into the
folder.  `page` makes docs/coverage.md of them, and `total` prints a line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from highwater.simulation.part_list import SWITCHES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coverage.md"
BEFORE = "7cdeae7"
"""The commit that brought `--coverage`; most workloads came after it."""
SEEDS = 100
FLAGS = tuple(flag.replace("_", "-") for flag in SWITCHES)
SETS: tuple[tuple[str, ...], ...] = (
    (),
    *((flag,) for flag in FLAGS),
    ("transactions", "groups", "retained", "admin"),
    ("compacted", "trimmed", "transactions", "joints"),
    ("disk-errors", "power-loss", "compacted", "retained", "log-dirs"),
    ("groups", "static-members", "admin", "unclean", "cold-reads"),
)
KINDS = ("errors", "transitions", "branches", "pairs")


def part(folder: Path, number: int, commit: str, seeds: int) -> int:
    """Runs one set; gives the exit code of `highwater sim`, or 0 where a seed of an older commit
    breaks a rule: the page counts it."""
    tree = tree_of(folder, commit)
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    sim = [sys.executable, "-m", "highwater.cli.main", "sim"]
    told = subprocess.run(
        [*sim, "--help"], cwd=tree, env=environment, capture_output=True, text=True, check=True
    ).stdout
    flags = [f"--{flag}" for flag in SETS[number] if f" --{flag} " in told]
    name = f"{commit or 'now'}-{number}"
    log, reached = folder / f"{name}.jsonl", folder / f"{name}.json"
    log.unlink(missing_ok=True)
    reached.unlink(missing_ok=True)
    first = SEEDS * number
    command = [*sim, "--seeds", f"{first}..{first + seeds - 1}", "--pace", "0.3", "--jobs", "0"]
    command += ["--keep-going", "--finds", "1000000", "--log", str(log)]
    command += ["--coverage", str(reached), *flags]
    code = subprocess.run(command, cwd=tree, env=environment, check=False).returncode
    return 0 if commit and code == 1 else code


def tree_of(folder: Path, commit: str) -> Path:
    """This tree, or a copy of that commit's."""
    if not commit:
        return ROOT
    tree = folder / f"tree-{commit}"
    if not tree.exists():
        begun = folder / f"tree-{commit}.begun"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(begun)], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=begun, check=True)
        begun.rename(tree)
    return tree


class Total:
    """What all sets of a commit reached together."""

    def __init__(self, folder: Path, name: str) -> None:
        self.commits: dict[str, None] = {}
        self.seeds = self.broken = 0
        self.reached: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self.never: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self.done: Counter[str] = Counter()
        self.lacking: set[str] = set()
        """Flags that the commit did not have."""
        for file in sorted(folder.glob(f"{name}-*.json")):
            found = json.loads(file.read_text())
            self.commits[found["commit"]] = None
            for kind in KINDS:
                self.reached[kind] |= found["reached"][kind].keys()
                self.never[kind] |= set(found["never"][kind])
            self._add(file.with_suffix(".jsonl"), SETS[int(file.stem.rpartition("-")[2])])
        for kind in KINDS:
            self.never[kind] -= self.reached[kind]

    def _add(self, log: Path, flags: tuple[str, ...]) -> None:
        for line in log.read_text().splitlines():
            row: dict[str, Any] = json.loads(line)
            if "asked" in row:
                self.lacking |= {f for f in flags if not row["asked"].get(f.replace("-", "_"))}
            if "seed" not in row:
                continue
            self.seeds += 1
            self.broken += bool(row["violation"])
            self.done.update(row.get("operations", {}))

    def cell(self, kind: str) -> str:
        reached = len(self.reached[kind])
        return f"{reached:,} of {reached + len(self.never[kind]):,}"


def sentence(folder: Path) -> str:
    now = Total(folder, "now")
    cells = ", ".join(f"{kind} {now.cell(kind)}" for kind in KINDS)
    return f"{now.seeds:,} seeds, {now.broken} broken; reached: {cells}"


def page(folder: Path) -> str:
    """docs/coverage.md."""
    before, now = Total(folder, BEFORE), Total(folder, "now")
    lines = [_HEAD.format(sets=len(SETS), seeds=SEEDS)]
    lines.append(f"| | at {BEFORE} | at {', '.join(now.commits)} |\n|---|---|---|")
    lines.append(f"| seeds | {before.seeds:,} | {now.seeds:,} |")
    lines.append(f"| seeds that broke a rule | {before.broken} | {now.broken} |")
    lines += [f"| {kind} | {before.cell(kind)} | {now.cell(kind)} |" for kind in KINDS]
    lacking = ", ".join(f"`--{flag}`" for flag in sorted(before.lacking)) or "no flag"
    lines.append(f"\n{BEFORE} lacked {lacking}: its sets ran without.")
    lines.append(f"\n{_OPERATIONS}\n\n| | at {BEFORE} | now |\n|---|---|---|")
    names = sorted(before.done.keys() | now.done.keys())
    lines += [f"| {name} | {before.done[name]:,} | {now.done[name]:,} |" for name in names]
    lines.append(f"\n{_NEVER}\n")
    for kind in ("errors", "transitions"):
        lines += [f"**{kind}**: {'; '.join(_short(now.never[kind]))}\n"]
    return "\n".join(lines)


def _short(things: set[str]) -> list[str]:
    """Errors of one API in one piece."""
    by_api: dict[str, list[str]] = {}
    for thing in sorted(things):
        head, _, rest = thing.partition(": ")
        by_api.setdefault(head, []).append(rest)
    return [f"{head}: {', '.join(rest)}" if rest[0] else head for head, rest in by_api.items()]


_HEAD = """# What seeds reach

`scripts/long coverage` runs {sets} sets of `highwater sim`'s flags with {seeds} seeds each, once in
this tree and once in an older one, and makes this page. What the kinds mean, and why some things
are never reached, is in [simulation.md](simulation.md).
"""
_OPERATIONS = """## What the clients did

The sum over all seeds."""
_NEVER = """## Never reached

Of the other two kinds, the file that `highwater sim --coverage` writes has each by name."""


def main(words: list[str]) -> int:
    folder = Path(words[1])
    if words[0] == "part":
        commit = words[3] if len(words) > 3 else ""
        if not re.fullmatch(r"[0-9a-f]*", commit):
            print(f"{commit} is no commit", file=sys.stderr)
            return 2
        return part(folder, int(words[2]), commit, int(words[4]) if len(words) > 4 else SEEDS)
    if words[0] == "page":
        PAGE.write_text(page(folder))
    print(sentence(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
