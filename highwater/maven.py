"""Jars by `mvn`: the only module that fetches any.

`mvn` knows its repositories and mirrors from the user's own settings, so nothing here names a host.
A folder of jars appears by one rename: it is whole or absent, even where two processes fetch at
once, or one is killed half-way.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class FetchError(Exception):
    """Jars could not be fetched; one clear line."""


class Artifact(NamedTuple):
    group: str
    name: str
    version: str
    sha256: str = ""
    """The jar's checksum, in hexadecimal digits; empty: it is not checked."""

    @property
    def jar(self) -> str:
        return f"{self.name}-{self.version}.jar"


_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>highwater</groupId><artifactId>fetch</artifactId><version>1</version><packaging>pom</packaging>
<repositories><repository><id>gcs-maven-central-mirror</id><url>file:none</url>
<releases><enabled>false</enabled></releases><snapshots><enabled>false</enabled></snapshots>
</repository></repositories>
<dependencies>
{dependencies}
</dependencies></project>
"""
_NOT_THERE = ("Could not find artifact", "was not found in")
"""The second is what Maven has noted of an earlier attempt."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


def cache_dir() -> Path:
    """The project's cache: HIGHWATER_CACHE, else highwater in XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("HIGHWATER_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "highwater"


def pom(artifacts: Sequence[Artifact], alone: bool = False) -> str:
    """A project that depends on these.

    Spark's parent pom names a mirror as a repository of its own, which not every network reaches;
    declaring that id again, with nothing enabled, leaves the settings of the user's Maven alone to
    decide.
    """
    return _POM.format(
        dependencies="\n".join(
            f"<dependency><groupId>{a.group}</groupId><artifactId>{a.name}</artifactId>"
            f"<version>{a.version}</version>{_ALONE * alone}</dependency>"
            for a in artifacts
        )
    )


def has_jars(artifacts: Sequence[Artifact], folder: Path) -> bool:
    return all((folder / artifact.jar).is_file() for artifact in artifacts)


def fetch_jars(
    what: str,
    artifacts: Sequence[Artifact],
    target: Path,
    env: Mapping[str, str] = os.environ,
    *,
    alone: bool = False,
) -> None:
    """Puts the jars into the folder `target`, unless they are there already.

    With what they need at run time, or `alone`.  Raises FetchError: no Maven, Maven's own first
    error, or a jar that is not the one of its checksum.
    """
    if has_jars(artifacts, target):
        return
    mvn = shutil.which("mvn", path=env.get("PATH"))
    if mvn is None:
        raise FetchError(
            f"{what} is fetched by Maven, and there is no mvn: install Maven 3 or later"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as work:
        (Path(work) / "pom.xml").write_text(pom(artifacts, alone))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command = [mvn, "-q", "-B", *goal, f"-DoutputDirectory={work}/jars"]
        done = subprocess.run(
            command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            lines = [_COLOUR.sub("", line).strip() for line in done.stdout.splitlines()]
            if any(told in line for line in lines for told in _NOT_THERE):
                raise FetchError(
                    f"{what} is in no repository of Maven's settings: is its version right?"
                )
            said = [n for n in lines if n.startswith("[ERROR]") and n != "[ERROR]"]
            reason = said[0] if said else (done.stdout + done.stderr).strip()
            raise FetchError(f"mvn could not fetch {what}: {reason[:300]}")
        _check(what, artifacts, Path(work) / "jars")
        if target.is_dir() and not has_jars(artifacts, target):
            shutil.rmtree(target)
        try:
            os.rename(f"{work}/jars", target)
        except OSError:
            if not has_jars(artifacts, target):
                raise


def _check(what: str, artifacts: Sequence[Artifact], folder: Path) -> None:
    for artifact in artifacts:
        path = folder / artifact.jar
        if not path.is_file():
            raise FetchError(f"mvn fetched {what} without {artifact.jar}")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if artifact.sha256 and found != artifact.sha256:
            raise FetchError(
                f"mvn fetched {what}, but {artifact.jar} has SHA-256 {found},"
                f" not {artifact.sha256}: ask who keeps the repository in Maven's settings"
            )
