"""`scripts/setup` in two parts: a killed one is mended, and a verdict waits for PySpark.

The scripts are the clone's own.  The installer is a stand-in for uv, which notes its calls, waits
where it is told to, and fails where it is told to; the environment's Python is the one that runs
this test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted.stories import PLANTS
from tests.planted.story import write
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.integration

UV = r"""#!/bin/sh
# the stand-in: $STAGE holds what it is told, and what it was asked
part=none
for last; do part=$(basename "$last" .txt); done
echo "$*" >>"$STAGE/calls"
if [ "$1" = venv ]; then
  mkdir -p .venv/bin
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$REAL_PYTHON" >.venv/bin/python
  chmod +x .venv/bin/python
  part=venv
else
  cp "$STAGE/highwater" .venv/bin/highwater
fi
if [ -e "$STAGE/fails-$part" ]; then echo "no way to $part"; exit 1; fi
if [ -p "$STAGE/holds-$part" ]; then echo "$part" >"$STAGE/at-work"; cat "$STAGE/holds-$part"; fi
"""
DEMO = r"""#!/bin/sh
exec "$REAL_PYTHON" -c '
import sys
from pathlib import Path
from highwater.verdict.by_spark import spark_submit
from highwater.verdict.runner import run
if sys.argv[2] == "find":
    print("found", spark_submit.find(lambda line: print(line, flush=True)).home.name)
else:
    verdict = run(Path(sys.argv[2]), progress=lambda line: print(line, flush=True))
    print(verdict.verdict, "by", verdict.engine, verdict.notes)
' "$@"
"""


class Clone:
    """A clone's scripts and lock in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stage = folder / "clone", folder / "stage"
        for made in (self.folder / "scripts", self.stage, folder / "bin", folder / "jdk" / "bin"):
            made.mkdir(parents=True)
        for name in ("scripts/setup", "scripts/demo", "requirements.lock", "pyproject.toml"):
            (self.folder / name).symlink_to(ROOT / name)
        for name in ("setup", "demo"):  # they go to the folder above their own
            (self.folder / "scripts" / name).unlink()
            self.program(self.folder / "scripts" / name, (ROOT / "scripts" / name).read_text())
        (self.folder / "highwater").symlink_to(ROOT / "highwater")
        self.program(folder / "bin" / "uv", UV)
        self.program(folder / "bin" / "mvn", "#!/bin/sh\nexit 1\n")
        self.program(
            folder / "jdk" / "bin" / "java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"
        )
        self.program(self.stage / "highwater", DEMO)
        self.env = {
            **os.environ,
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "JAVA_HOME": str(folder / "jdk"),
            "HIGHWATER_CACHE": str(folder / "cache"),
            "STAGE": str(self.stage),
            "REAL_PYTHON": sys.executable,
            "PYTHON": sys.executable,
            "TMPDIR": str(folder),
        }
        self.started: list[subprocess.Popen[str]] = []

    @staticmethod
    def program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def start(self, script: str, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [self.folder / "scripts" / script, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.env,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def setup(self, *words: str) -> str:
        process = self.start("setup", *words)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        return said

    def hold(self, part: str) -> Path:
        """The stand-in waits in this part until the file is written."""
        os.mkfifo(self.stage / f"holds-{part}")
        return self.stage / f"holds-{part}"

    def wait_for(self, part: str) -> None:
        at_work = self.stage / "at-work"
        eventually(lambda: at_work.exists() and at_work.read_text().strip() == part, part)

    def calls(self) -> list[str]:
        """What the stand-in was asked since the last call."""
        path = self.stage / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        found = [re.sub(r"--python \S+ |--require-hashes |--no-deps ", "", x) for x in lines]
        return [line.removeprefix("pip install ").replace(".venv/", "") for line in found]

    def file(self, name: str) -> Path:
        return self.folder / ".venv" / name

    def kill(self) -> None:
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    made = Clone(tmp_path)
    yield made
    made.kill()


EDITABLE = "--no-build-isolation -e ."


def test_a_setup_by_hand_installs_all_and_the_next_one_nothing(clone: Clone) -> None:
    said = clone.setup()
    venv, *parts = clone.calls()
    assert venv.startswith("venv")
    assert parts == ["-r first.txt", EDITABLE, "-r spark.txt", "-r later.txt"]
    lines = [clone.file(f"{part}.txt").read_text() for part in ("first", "spark", "later")]
    lock = (clone.folder / "requirements.lock").read_text()
    uv = re.search(r"(?ms)^uv==.*?^(?=\S)", lock)
    assert uv is not None
    assert sorted("".join([*lines, uv[0]]).splitlines()) == sorted(lock.splitlines())
    assert "pyspark==" in lines[1]
    assert ".venv is ready" in said
    assert clone.setup() == ""
    assert clone.calls() == []


@pytest.mark.parametrize("part", ["venv", "first", "spark", "later"])
def test_a_killed_setup_is_mended_by_the_next(clone: Clone, part: str) -> None:
    hold = clone.hold(part)
    clone.start("setup")
    clone.wait_for(part)
    clone.kill()
    hold.unlink()
    clone.calls()
    (clone.folder / ".venv" / "half").touch()
    assert ".venv is ready" in clone.setup()
    calls = clone.calls()
    if part == "venv":  # nothing of it is kept
        assert calls[0].startswith("venv")
        assert calls[1:] == ["-r first.txt", EDITABLE, "-r spark.txt", "-r later.txt"]
        assert not clone.file("half").exists()
    else:  # what was at work is installed over what it left
        assert calls[0] == f"--reinstall -r {part}.txt"
        assert [c for c in calls[1:] if "reinstall" in c and "-e ." not in c] == []
        assert clone.file("half").exists()
    assert not clone.file("setup-unfinished").exists()


def test_two_at_once_install_once(clone: Clone) -> None:
    hold = clone.hold("spark")
    first = clone.start("setup")
    clone.wait_for("spark")
    second = clone.start("setup")
    hold.write_text("go on")
    assert ".venv is ready" in first.communicate(timeout=60)[0]
    assert second.communicate(timeout=60)[0] == ""
    assert len(clone.calls()) == 5


def test_a_verdict_waits_for_pyspark(clone: Clone) -> None:
    pytest.importorskip("pyspark")
    hold = clone.hold("spark")
    demo = clone.start("demo", "find")
    assert demo.stdout is not None
    said = []
    for line in demo.stdout:
        said.append(line)
        if "waiting for PySpark" in line:
            break
    assert not clone.file("setup-spark-stamp").exists()
    hold.write_text("go on")
    rest, _ = demo.communicate(timeout=60)
    assert "found pyspark" in rest, "".join(said) + rest
    assert clone.file("setup-spark-stamp").exists()


def test_without_pyspark_duckdb_gives_the_verdict_and_a_line_tells_why(
    clone: Clone, tmp_path: Path
) -> None:
    (clone.stage / "fails-spark").touch()
    write(tmp_path / "run", [plant for plant in PLANTS if plant.name == "clean"])
    demo = clone.start("demo", str(tmp_path / "run"))
    said, _ = demo.communicate(timeout=60)
    assert demo.returncode == 0, said
    why = "checked by DuckDB alone: PySpark could not be installed: uv could not install"
    assert said.count(why) == 2, said  # as progress, and among the verdict's notes
    assert "valid by duckdb" in said
    (clone.stage / "fails-spark").unlink()
    assert ".venv is ready" in clone.setup()  # and the next setup has it
