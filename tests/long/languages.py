"""Runs the examples of docs/languages.md, against the image and against `highwater up`.

usage: python -m tests.long.languages [LANGUAGE ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from highwater.cli.cluster_folder import control_url
from tests.cluster_image import ROOT, build, container

LANGUAGES = ("python", "javascript", "go", "rust", "java")


def run(language: str, url: str, token: str = "") -> str:
    """The last line that the example prints."""
    variables = {"CONTROL": url, "HIGHWATER_CONTROL_TOKEN": token, "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "examples" / "run", language],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


@contextmanager
def up(folder: Path, first_port: int) -> Iterator[str]:
    """The control API of a cluster that `highwater up` has started."""
    command = (sys.executable, "-m", "highwater.cli.main")
    options = ("--dir", str(folder), "--port", str(first_port), "--control", str(first_port + 9))
    subprocess.run((*command, "up", "--detach", *options), check=True, capture_output=True)
    try:
        url = control_url(folder)
        assert url == f"http://127.0.0.1:{first_port + 9}"
        yield url
    finally:
        subprocess.run((*command, "down", "--dir", str(folder)), check=True, capture_output=True)


def main(languages: Sequence[str]) -> None:
    build()
    told = []
    with (
        tempfile.TemporaryDirectory() as work,
        up(Path(work) / "up", 29092) as url,
        container() as c,
    ):
        c.start_cluster()
        for language in languages:
            began = time.monotonic()
            for where in ((url,), (c.control.url, c.token)):
                print(run(language, *where))
            told.append(f"{language} {time.monotonic() - began:.0f} s")
    print(f"each against `highwater up` and the image, without a violation: {', '.join(told)}")


if __name__ == "__main__":
    main(sys.argv[1:] or LANGUAGES)
