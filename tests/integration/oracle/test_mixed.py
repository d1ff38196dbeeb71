"""Apache Kafka and Highwater brokers as members of one cluster; Highwater's are two of three until
all have become the other kind.

The tests of a module run in their order on one cluster and under one load, which begins with the
cluster and ends before the logs are compared.  Each test checks that the load goes on.  The end
checks that nothing acknowledged was lost, that all replicas are equal byte for byte, that Apache
Kafka's own tool finds nothing wrong in the files of either kind, and that each kind starts on the
folder of the other.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from highwater.chaos.witnesses import disk_reader as disk
from highwater.kafka.wire import records
from tests.integration.oracle.dump import dump
from tests.integration.oracle.load import Load, lost
from tests.integration.oracle.rig import (
    APACHE,
    HIGHWATER,
    PARTITIONS,
    Mixed,
    create,
    eventually,
    log_bytes,
)
from tests.integration.reading import read_all

pytestmark = [
    pytest.mark.integration, pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(240),
]  # fmt: skip
Run = Callable[..., "subprocess.CompletedProcess[str]"]
TOPIC, CODECS = "mixed", "codecs"
PLACES = [(topic, partition) for topic in (TOPIC, CODECS) for partition in range(PARTITIONS)]
KINDS = {1: HIGHWATER, 2: APACHE, 3: HIGHWATER}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, apache_tool: Run) -> Iterator[Mixed]:
    made = Mixed(
        tmp_path_factory.mktemp("mixed") / "cluster",
        KINDS,
        {"log.segment.bytes": "60000", "log.index.interval.bytes": "1024"},
    )
    with made.background:
        create(made, TOPIC)
        yield made


@pytest.fixture(scope="module")
def load(mixed: Mixed) -> Iterator[Load]:
    made = Load(mixed.bootstrap, TOPIC, PARTITIONS)
    yield made
    made._stop.set()


def leaders(mixed: Mixed) -> dict[int, int]:
    return {partition: leader for partition, (leader, _) in mixed.seen(TOPIC).items()}


def whole_again(mixed: Mixed, load: Load) -> None:
    eventually(lambda: mixed.whole(TOPIC), "all are in sync", lambda: mixed.state(TOPIC))
    load.more()


def spread_leaders(mixed: Mixed) -> None:
    for partition in range(PARTITIONS):
        mixed.move_leader(TOPIC, partition, 1 + partition % 3)


def make_controller(mixed: Mixed, kind: str) -> int:
    """Deletes /controller while only brokers of this kind can make it again."""
    zk = KazooClient(mixed.cluster.zookeeper_connect)
    zk.start(60)
    others = [n for n in mixed.numbers if mixed.kinds[n] != kind]

    def controller() -> int:
        found = zk.exists("/controller") and zk.get("/controller")[0]
        return int(json.loads(found)["brokerid"]) if found else -1

    def known() -> bool:
        number = controller()
        told = [mixed.metadata([], n).controller_id for n in mixed.numbers]
        return mixed.kinds.get(number) == kind and set(told) == {number}

    try:
        if controller() in others:
            for number in others:
                mixed.background.pause(number)
            zk.delete("/controller")
            eventually(lambda: controller() >= 0, "another controller", lambda: "none")
            for number in others:
                mixed.background.resume(number)
        eventually(known, f"{kind} is the controller", lambda: mixed.state(TOPIC))
        return controller()
    finally:
        zk.stop()
        zk.close()


def test_leaders_move_between_the_kinds(mixed: Mixed, load: Load) -> None:
    load.more()
    for turn in range(3):
        for partition in range(PARTITIONS):
            mixed.move_leader(TOPIC, partition, 1 + (partition + turn) % 3)

        def moved(turn: int = turn) -> bool:
            return leaders(mixed) == {p: 1 + (p + turn) % 3 for p in range(PARTITIONS)}

        eventually(moved, "leaders moved", lambda: mixed.state(TOPIC))
        load.more()


def test_every_codec(mixed: Mixed) -> None:
    """A topic whose partitions hold batches of one codec each; it is compared with the others."""
    create(mixed, CODECS)
    for partition, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd", "lz4")):
        producer = Producer(
            {
                "bootstrap.servers": mixed.bootstrap, "compression.type": codec,
                "enable.idempotence": True, "linger.ms": 5, "batch.num.messages": 50,
            }
        )  # fmt: skip
        for number in range(1000):
            value = b"value %d " % number + b"x" * (number % 700)
            producer.produce(CODECS, value, str(number), partition, headers={"n": b"1"})
        assert producer.flush(60) == 0


@pytest.mark.parametrize("kind", [APACHE, HIGHWATER])
def test_each_kind_is_the_controller(mixed: Mixed, load: Load, kind: str) -> None:
    make_controller(mixed, kind)
    create(mixed, f"made-by-{kind}")
    spread_leaders(mixed)
    load.more()
    admin = AdminClient({"bootstrap.servers": mixed.bootstrap})
    admin.delete_topics([f"made-by-{kind}"])[f"made-by-{kind}"].result(60)
    whole_again(mixed, load)


@pytest.mark.parametrize("is_controller", [True, False], ids=["controller", "other"])
@pytest.mark.parametrize("victim", [APACHE, HIGHWATER])
def test_each_kind_is_killed(mixed: Mixed, load: Load, victim: str, is_controller: bool) -> None:
    others = {APACHE: HIGHWATER, HIGHWATER: APACHE}
    controller = make_controller(mixed, victim if is_controller else others[victim])
    number = controller if is_controller else mixed.of_kind(victim)[-1]
    spread_leaders(mixed)
    load.more()
    mixed.background.kill(number)
    load.more()
    assert number not in leaders(mixed).values()
    mixed.background.start(number)
    whole_again(mixed, load)


def test_the_replicas_are_equal_and_nothing_is_lost(mixed: Mixed, load: Load) -> None:
    load.finish()
    eventually(lambda: mixed.whole(TOPIC), "all are in sync", lambda: mixed.state(TOPIC))
    for topic, partition in PLACES:
        folders = [mixed.folder(n, topic, partition) for n in mixed.numbers]

        def equal(folders: list[Path] = folders) -> bool:
            return len({log_bytes(folder) for folder in folders}) == 1

        eventually(equal, f"replicas of {topic}-{partition} are equal", lambda: mixed.state(TOPIC))
        for folder in folders:
            assert topic == CODECS or len(disk.segments(folder)) > 1
            # an epoch without records is known to its leader alone
            assert set(epochs(log_bytes(folder))) <= set(disk.epoch_entries(folder))
    assert lost(load, read_all(mixed.bootstrap, TOPIC, PARTITIONS)) == []
    for number in mixed.of_kind(HIGHWATER):
        assert not [e for e in mixed.cluster.logged_exceptions() if f"broker-{number} " in e]


def test_each_kind_starts_on_the_folder_of_the_other(
    mixed: Mixed, load: Load, apache_tool: Run
) -> None:
    """All stop, and come back as the other kind; the old records are there, and more can be
    written.

    Then Apache Kafka's own tool reads every folder, of which each was written by both.
    """
    before = {
        (n, topic, p): log_bytes(mixed.folder(n, topic, p))
        for n in mixed.numbers
        for topic, p in PLACES
    }
    stop_all(mixed)
    dump_all(apache_tool, mixed)
    other = {APACHE: HIGHWATER, HIGHWATER: APACHE}
    mixed.become({n: other[kind] for n, kind in mixed.kinds.items()})
    mixed.start_all()
    eventually(lambda: mixed.whole(TOPIC), "all are in sync", lambda: mixed.state(TOPIC))
    after = Load(mixed.bootstrap, TOPIC, PARTITIONS)
    after.more()
    after.finish()
    assert not set(load.acked) & set(after.acked)
    found = read_all(mixed.bootstrap, TOPIC, PARTITIONS)
    assert lost(load, found) == lost(after, found) == []
    for (number, topic, partition), data in before.items():
        now = log_bytes(mixed.folder(number, topic, partition))
        assert now.startswith(data)
        assert (len(now) > len(data)) == (topic == TOPIC)
    stop_all(mixed)
    dump_all(apache_tool, mixed)


def epochs(log: bytes) -> list[tuple[int, int]]:
    """Leader epochs and their start offsets, by the batches of a log."""
    found: dict[int, int] = {}
    for header in records.batches(log):
        found.setdefault(header.partition_leader_epoch, header.base_offset)
    return list(found.items())


def dump_all(apache_tool: Run, mixed: Mixed) -> None:
    places = [(TOPIC, 0), *((topic, p) for topic, p in PLACES if topic == CODECS)]
    seen = dump(apache_tool, [mixed.folder(n, *place) for n in mixed.numbers for place in places])
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec} " in seen
    assert "producerId: " in seen


def stop_all(mixed: Mixed) -> None:
    for number in mixed.numbers:
        assert mixed.background.stop(number) in (0, 143)  # 143: a JVM that SIGTERM ended
        clean = mixed.cluster.data_dirs(number)[0] / ".kafka_cleanshutdown"
        assert clean.exists(), f"broker {number} stopped cleanly"
