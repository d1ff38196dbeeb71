"""The versions of the programs and libraries that took part in a run."""

from __future__ import annotations

import sys
from importlib import metadata


def versions() -> dict[str, str]:
    """Package -> version, as installed."""
    found = {"python": sys.version.split()[0]}
    for package in ("highwater-kafka", "trio", "kafka-python", "confluent-kafka", "pyspark"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
