"""kcat (librdkafka in C) sees the cluster as it sees one of Apache Kafka's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence

import pytest

pytestmark = pytest.mark.integration
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def brokers_listed(kcat: Run, port: int) -> dict[int, str]:
    done = kcat("-L", "-J", "-b", f"127.0.0.1:{port}")
    assert done.returncode == 0, done.stderr
    return {broker["id"]: broker["name"] for broker in json.loads(done.stdout)["brokers"]}


def test_any_broker_lists_all_three_at_addresses_that_the_host_reaches(
    kcat: Run, ports: Sequence[int]
) -> None:
    for port in ports:
        assert brokers_listed(kcat, port) == {
            number: f"127.0.0.1:{other}" for number, other in enumerate(ports, 1)
        }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_in_order_with_their_keys_and_headers(
    kcat: Run, bootstrap: str, codec: str
) -> None:
    topic = f"kcat-{codec}"
    sent = [f"k{n}:value {n} " + "x" * 100 for n in range(500)]
    produced = kcat(
        *("-P", "-b", bootstrap, "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "a=b"),
        *("-X", "acks=all"),
        stdin="\n".join(sent) + "\n",
    )
    assert produced.returncode == 0, produced.stderr
    consumed = kcat(
        *("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"),
        *("-f", "%o %h %k:%s\n"),
    )
    assert consumed.stdout.splitlines() == [f"{n} a=b {line}" for n, line in enumerate(sent)]


def test_the_end_of_a_partition_is_an_empty_answer_and_not_an_error(
    kcat: Run, bootstrap: str
) -> None:
    kcat("-P", "-b", bootstrap, "-t", "kcat-end", "-p", "0", stdin="one\n")
    done = kcat("-C", "-b", bootstrap, "-t", "kcat-end", "-p", "0", "-o", "end", "-e")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "Reached end of topic kcat-end [0] at offset 1" in done.stderr


def test_an_offset_is_found_by_its_time(kcat: Run, bootstrap: str) -> None:
    topic = "kcat-times"
    kcat("-P", "-b", bootstrap, "-t", topic, "-p", "0", stdin="".join(f"{n}\n" for n in range(9)))
    lines = kcat(
        *("-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"),
        *("-f", "%o %T\n"),
    ).stdout.splitlines()
    assert len(lines) == 9
    first = int(lines[0].split()[1])
    assert f"{topic} [0] offset 0" in kcat("-Q", "-b", bootstrap, "-t", f"{topic}:0:{first}").stdout
