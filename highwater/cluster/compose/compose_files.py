"""compose.yaml and the files of which its images are built, in a clone or an installed package.

The Dockerfiles expect a folder with the layout of a clone, which no installed package has.  So its
files are copied into the project's cache in that layout, once, under a name derived from their
contents.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from highwater.child_processes import StartError
from highwater.maven import cache_dir

PACKAGE = Path(__file__).resolve().parents[2]
ROOMS = ("broker", "controller", "spark")
"""Packages inside `highwater`; in a clone these folders lie beside it."""
_NOT_IN_IMAGES = ("_vendor", "compose", "docs", *ROOMS)
"""Entries at the package's top that a clone has elsewhere."""
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so")


@cache
def compose_file() -> Path:
    """compose.yaml, in the folder that its images are built from; StartError where it is not."""
    clone = PACKAGE.parent / "compose.yaml"
    if clone.exists() and (PACKAGE / "broker").is_symlink():
        return clone
    if not (PACKAGE / "compose").is_dir():
        raise StartError(f"{PACKAGE} holds no compose.yaml: install highwater-kafka again")
    return laid_out(PACKAGE, cache_dir()) / "compose.yaml"


def laid_out(package: Path, cache: Path) -> Path:
    """The folder in `cache` that has the package's files in the layout of a clone."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".compose-") as name:
        work = Path(name) / "compose"
        shutil.copytree(package / "compose", work)

        def left_out(folder: str, names: list[str]) -> set[str]:
            top = {*names} & {*_NOT_IN_IMAGES} if Path(folder) == package else set()
            return top | _LEFT_OUT(folder, names)

        shutil.copytree(package, work / package.name, ignore=left_out)
        for room in ROOMS:
            shutil.copytree(package / room, work / room, ignore=_LEFT_OUT)
            (work / package.name / room).symlink_to(Path("..") / room)
        target = cache / f"compose-{_digest(work)}"
        try:
            os.rename(work, target)
        except OSError:
            if not target.is_dir():
                raise
    return target


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
