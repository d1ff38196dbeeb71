"""Where the jobs for Spark and the SQL of the checks stand: beside the packages in a clone,
inside in a wheel.

`catalog()` is the jobs' own module spark/catalog.py, loaded from that folder: one list of checks
and one schema for both engines, although the jobs must run on a driver that has no Highwater.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]


class ChecksMissing(Exception):
    """The installation is not whole."""


@cache
def spark_folder() -> Path:
    for folder in (PACKAGE.parent / "spark", PACKAGE / "spark"):
        if (folder / "catalog.py").is_file():
            return folder
    raise ChecksMissing(
        f"the checks (spark/catalog.py) are neither in {PACKAGE.parent} nor in {PACKAGE}: "
        "install Highwater again"
    )


@cache
def catalog() -> Any:
    name = "highwater_spark_catalog"
    spec = importlib.util.spec_from_file_location(name, spark_folder() / "catalog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
