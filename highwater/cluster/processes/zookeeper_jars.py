"""ZooKeeper's jars: what a server of one node needs, fixed by version and SHA-256.

Maven puts them into the project's cache when they are asked for.  These six are all that such a
server loads: no netty (that is for TLS), and the smallest of the loggers, because log4j takes 0.6 s
of a start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from highwater.maven import Artifact, FetchError, cache_dir, fetch_jars, has_jars

ZOOKEEPER_VERSION = "3.9.3"
ARTIFACTS = (
    Artifact(
        "org.apache.zookeeper",
        "zookeeper",
        ZOOKEEPER_VERSION,
        "ad6570105768d18382a762325b4460368b7089a5a77c053e682b17942e0e72b5",
    ),
    Artifact(
        "org.apache.zookeeper",
        "zookeeper-jute",
        ZOOKEEPER_VERSION,
        "be72e2c9099413a9878ce830b65bb22e0be755dc2a22b290550ab9e03b5b4cfa",
    ),
    Artifact(
        "org.slf4j",
        "slf4j-api",
        "2.0.16",
        "a12578dde1ba00bd9b816d388a0b879928d00bab3c83c240f7013bf4196c579a",
    ),
    Artifact(
        "org.slf4j",
        "slf4j-simple",
        "2.0.16",
        "effc32018658bea09d1e08c7d1060ccad46c086960f583d07dd7ffe9c1172a47",
    ),
    Artifact(
        "io.dropwizard.metrics",
        "metrics-core",
        "4.2.30",
        "8eeac95450c03378d9d4c1dedff7118bb63508a97613f4df074c924e1b82ccfb",
    ),
    Artifact(
        "org.xerial.snappy",
        "snappy-java",
        "1.1.10.7",
        "4c766cb3f855415ee734b2392949a0b6f12a60879334a74518deaf6270d32e36",
    ),
)


def cached() -> Path:
    return cache_dir() / f"zookeeper-{ZOOKEEPER_VERSION}-server"


def fetch(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of the jars in the cache; Maven fetches missing ones.  Raises FetchError."""
    if not has_jars(ARTIFACTS, cached()):
        print(f"fetches ZooKeeper {ZOOKEEPER_VERSION} by Maven, once", file=sys.stderr, flush=True)
    fetch_jars(f"ZooKeeper {ZOOKEEPER_VERSION}", ARTIFACTS, cached(), env, alone=True)
    return cached()


if __name__ == "__main__":
    try:
        fetch()
    except FetchError as problem:
        sys.exit(str(problem))
