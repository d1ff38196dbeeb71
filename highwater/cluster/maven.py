"""Jars by `mvn`: an artifact with all its run-time dependencies, into the project's cache.

`mvn` knows its repositories and mirrors from the user's own settings, so nothing here names a host.
The folder appears by one rename: it is whole or absent, even where two processes fetch at once, or
one is killed half-way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from highwater.child_processes import StartError


class Artifact(NamedTuple):
    group: str
    name: str
    version: str


_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>highwater</groupId><artifactId>fetch</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
{dependencies}
</dependencies></project>
"""


def pom(artifacts: Sequence[Artifact]) -> str:
    return _POM.format(
        dependencies="\n".join(
            f"<dependency><groupId>{a.group}</groupId><artifactId>{a.name}</artifactId>"
            f"<version>{a.version}</version></dependency>"
            for a in artifacts
        )
    )


def fetch_jars(
    what: str, artifacts: Sequence[Artifact], target: Path, env: Mapping[str, str] = os.environ
) -> None:
    """Puts the jars into `target`, unless it is there already; StartError where that fails."""
    if target.is_dir():
        return
    mvn = shutil.which("mvn", path=env.get("PATH"))
    if mvn is None:
        raise StartError(
            f"{what} is fetched by Maven, and there is no mvn: install Maven 3 or later"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as work:
        (Path(work) / "pom.xml").write_text(pom(artifacts))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command = [mvn, "-q", "-B", *goal, f"-DoutputDirectory={work}/jars"]
        done = subprocess.run(
            command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            reason = said[0] if said else (done.stdout + done.stderr).strip()
            raise StartError(f"mvn could not fetch {what}: {reason}")
        try:
            os.rename(f"{work}/jars", target)
        except OSError:
            if not target.is_dir():
                raise
