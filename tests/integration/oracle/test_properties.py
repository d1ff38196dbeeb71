"""The properties that the table of configuration is compared with are those of Apache Kafka 3.9."""

from __future__ import annotations

import subprocess

import pytest

from highwater.cluster.processes import apache
from highwater.cluster.processes.zookeeper_process import find_java
from tests.integration.conftest import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.apache]

FACTS = ROOT / "tests" / "unit" / "highwater" / "kafka" / "config" / "kafka_configs.tsv"


def test_names_types_defaults_ranges_and_synonyms_are_as_kafka_itself_says() -> None:
    source = ROOT / "tests" / "integration" / "oracle" / "KafkaConfigs.java"
    jars = f"{apache.home()}/libs/*"
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    asked = [str(find_java()), *quick, "-cp", jars, str(source)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) > 350
    assert told == [line for line in FACTS.read_text().splitlines() if not line.startswith("#")]
