"""Finds the jobs for Spark and the SQL of the checks.  They lie beside the package in a clone, and
inside it in a wheel; either may be in a zip, as spark-submit's --py-files ships it.

Standard library only: see `highwater.verdict.catalog`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

Folder = Path | zipfile.Path


class ChecksMissing(Exception):
    """The installation is incomplete."""


@cache
def spark_folder() -> Path:
    """The folder of the jobs; it cannot be in a zip, because spark-submit gets their paths."""
    for folder in _candidates():
        if isinstance(folder, Path) and (folder / "verify.py").is_file():
            return folder
    raise ChecksMissing(f"the jobs for Spark (verify.py) are not {_places()}")


@cache
def sql_folder() -> Folder:
    """The folder that holds checks/ID.sql and views/NN_name.sql; it may be inside a zip."""
    for folder in _candidates():
        if (folder / "checks").is_dir():
            return folder
    raise ChecksMissing(f"the SQL of the checks is not {_places()}")


def _candidates() -> Iterator[Folder]:
    package = resources.files("highwater")
    assert isinstance(package, (Path, zipfile.Path))
    for folder in (package.parent, package):
        assert isinstance(folder, (Path, zipfile.Path))
        yield folder / "spark"


def _places() -> str:
    beside, inside = _candidates()
    return f"in {beside}, and not in {inside}: install Highwater again"
