"""The properties that the table of configuration is compared with are those of Apache Kafka 3.9;
where they belong to share groups, those of 4.2."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from highwater.cluster.processes import apache
from highwater.cluster.processes.zookeeper_process import find_java
from tests.integration.conftest import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.apache]

FACTS = ROOT / "tests" / "unit" / "highwater" / "kafka" / "config" / "kafka_configs.tsv"


SHARE = ("group.share.", "share.")


def told_by(home: Path) -> list[str]:
    """The lines that Apache Kafka's own classes give."""
    source = ROOT / "tests" / "integration" / "oracle" / "KafkaConfigs.java"
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    asked = [str(find_java()), *quick, "-cp", f"{home}/libs/*", str(source)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names_types_defaults_ranges_and_synonyms_are_as_kafka_itself_says() -> None:
    known = [line for line in FACTS.read_text().splitlines() if not line.startswith("#")]
    later = [line for line in known if line.startswith("share\t")]
    told = told_by(apache.home())
    assert len(told) > 350
    assert told == [line for line in known if line not in later]
    of_brokers = (line.split("\t") for line in told_by(apache.home("4.2.0")))
    assert later == ["\t".join(("share", *fields)) for kind, *fields in of_brokers
                     if kind == "broker" and fields[0].startswith(SHARE)]  # fmt: skip
