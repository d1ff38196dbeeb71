"""How long a newcomer waits: clones the clone, runs `scripts/demo` there, and tells its parts.

usage: python -m tests.long.fresh_clone [--without-caches]
  --without-caches   pip and uv download everything, as on a machine that never had it; what Maven
                     has fetched before stays
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENDS = (
    ("the clone's environment begins", r"setup: installing"),
    ("a cluster can run", r"setup: a cluster and its load can run"),
    ("the demo begins", r"starting ZooKeeper"),
    ("three brokers serve", r"brokers serve after"),
    ("load and faults are over", r"healing"),
    ("everything is read back", r"checking \d"),
    ("DuckDB's verdict", r"DuckDB, after"),
    ("PySpark is there", r"starting Spark"),
    ("Spark's verdict", r"Spark [\d.]+, after [\d.]+ s: "),
)
"""What has happened when a line of the demo is seen, in their order."""


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="highwater-fresh-") as work:
        clone, env = Path(work) / "clone", dict(os.environ)
        if "--without-caches" in words:
            env |= {"PIP_NO_CACHE_DIR": "1", "UV_CACHE_DIR": f"{work}/uv"}
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        code, found = _demo(clone, env)
        print((clone / ".venv" / "setup-later.log").read_text())
    last = 0.0
    for what, at in found:
        print(f"{at:6.1f} s  {at - last:+6.1f}  {what}")
        last = at
    told = dict(found)
    parts = ", ".join(f"{what} {told[what]:.0f} s" for what, _ in ENDS if what in told)
    print(f"exit code {code} after {last:.0f} s: {parts}")
    return code


def _demo(clone: Path, env: dict[str, str]) -> tuple[int, list[tuple[str, float]]]:
    """The exit code of a demo, and what happened after how many seconds."""
    started = time.monotonic()
    ends, found = list(ENDS), []
    with subprocess.Popen(
        [clone / "scripts" / "demo", "--seed", "7"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            at = time.monotonic() - started
            print(f"{at:6.1f} {line}", end="", flush=True)
            for end in [end for end in ends if re.search(end[1], line)]:
                found.append((end[0], at))
                ends.remove(end)
    return demo.returncode, [*found, ("the end", time.monotonic() - started)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
