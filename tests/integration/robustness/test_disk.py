"""A disk that is full, that fails, or that lost bytes: nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.background import BackgroundCluster
from tests.integration.robustness.load import (
    PARTITIONS,
    TOPIC,
    Load,
    in_sync,
    leaders,
    lines,
    output,
    seen,
    state,
)
from tests.integration.robustness.rig import BrokerProcess, ZooKeeper, assert_one_line
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
DISK_BYTES = 1 << 20


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, small_disk: Callable[[Path, int], None]
) -> Iterator[BackgroundCluster]:
    """Each broker has two log directories; the second one of broker 1 is small."""
    folder = tmp_path_factory.mktemp("disks")
    small_disk(folder / "broker-1" / "second", DISK_BYTES)
    with BackgroundCluster(folder, log_dirs="first,second") as made:
        made.create_topic(TOPIC, PARTITIONS)
        yield made


def moved_away(leader: int, isr: list[int]) -> bool:
    """The partition has moved away from broker 1."""
    return leader not in (1, -1) and 1 not in isr


def in_dir(cluster: BackgroundCluster, number: int, log_dir: str) -> set[int]:
    """The partitions in a log directory of a broker."""
    folder = cluster.folder / f"broker-{number}" / log_dir
    return {int(path.name.rpartition("-")[2]) for path in folder.glob(f"{TOPIC}-?")}


def count_in_dir(cluster: BackgroundCluster, number: int, log_dir: str) -> int:
    """Counts the internal topics' partitions too."""
    folder = cluster.folder / f"broker-{number}" / log_dir
    return sum(path.is_dir() for path in folder.glob("*-[0-9]"))


def test_one_of_two_disks_is_full(cluster: BackgroundCluster) -> None:
    """Its partitions move to other leaders, the others stay; when there is room again, all come
    back."""
    load = Load(cluster)
    eventually(lambda: in_sync(cluster), "all are in sync", lambda: state(cluster))
    assert any(leaders(cluster)[p] == 1 for p in in_dir(cluster, 1, "second"))
    offline = "log directory second is offline"
    load.until(lambda: lines(cluster, 1, offline), "the disk is full", lambda: state(cluster))
    gone, kept = in_dir(cluster, 1, "second"), in_dir(cluster, 1, "first")
    assert gone
    assert kept
    load.until(
        lambda: all(moved_away(*seen(cluster).get(p, (-1, []))) for p in gone),
        "others lead what was there",
        lambda: state(cluster),
    )
    assert all(1 in seen(cluster)[p][1] for p in kept)
    load.finish()
    [line] = lines(cluster, 1, offline)
    count = count_in_dir(cluster, 1, "second")
    assert count > len(gone)
    assert f"with {count} partitions: No space left on device; free space there" in line
    assert cluster.stop(1) == 0
    small = str(cluster.folder / "broker-1" / "second")
    subprocess.run(["mount", "-o", f"remount,size={64 << 20}", small], check=True)
    cluster.start(1)
    eventually(lambda: in_sync(cluster), "all are in sync", lambda: state(cluster))
    load.finish()
    assert cluster.cluster.logged_exceptions() == []


def test_a_broker_whose_disks_fail_ends(cluster: BackgroundCluster) -> None:
    """No file of broker 2 may grow any more: it cuts the partial write, and halts with one line."""
    cluster.mend()
    load = Load(cluster)
    eventually(lambda: in_sync(cluster), "all are in sync", lambda: state(cluster))
    sizes = [p.stat().st_size for p in (cluster.folder / "broker-2").glob("*/*/*.log")]
    limit = max(*sizes, (cluster.folder / "broker-2" / "output.log").stat().st_size + 20_000) + 7000
    hard = resource.RLIM_INFINITY
    resource.prlimit(cluster.cluster.pid("broker-2"), resource.RLIMIT_FSIZE, (limit, hard))
    load.until(lambda: not cluster.cluster.running("broker-2"), "it ends", lambda: state(cluster))
    load.until(lambda: 2 not in leaders(cluster), "others lead", lambda: state(cluster))
    load.finish()
    [end] = [line for line in cluster.cluster.unexpected_ends() if line.startswith("broker-2")]
    assert "ended with code 1: broker 2 stops: no log directory is left" in end
    for words in ("first: File too large", "second: File too large", "restart the broker"):
        assert words in end
    folder = cluster.folder / "broker-2"
    assert not list(folder.glob("*/.kafka_cleanshutdown"))
    # the system wrote up to the limit, which is within a batch; the broker cut that off again
    assert limit not in [p.stat().st_size for p in folder.glob("*/*/*.log")]
    cluster.start(2)
    eventually(lambda: in_sync(cluster), "it is back", lambda: state(cluster))
    load.finish()
    assert cluster.cluster.logged_exceptions() == []


def test_a_segment_that_was_cut(cluster: BackgroundCluster) -> None:
    """Cut within a batch, while the broker was stopped: logged, and fetched again from a leader."""
    cluster.mend()
    load = Load(cluster)
    load.until(lambda: len(load.acked) > 200, "some records", lambda: state(cluster))
    load.finish()
    eventually(lambda: in_sync(cluster), "all are in sync", lambda: state(cluster))
    assert cluster.stop(3) == 0
    segments = [p for p in (cluster.folder / "broker-3").glob("*/*/*.log") if p.stat().st_size]
    cut = max(segments, key=lambda path: path.stat().st_size)
    before = cut.read_bytes()
    os.truncate(cut, len(before) - 1000)
    cluster.start(3)
    eventually(
        lambda: cut.read_bytes() == before and in_sync(cluster),
        "it is whole",
        lambda: state(cluster),
    )
    told = [line for line in output(cluster, 3).splitlines() if str(cut.name) in line]
    assert any("are damaged or incomplete and were cut off" in line for line in told), told
    load.finish()
    assert cluster.cluster.logged_exceptions() == []


def test_a_full_disk_at_the_start(
    zookeeper: ZooKeeper,
    brokers: Callable[..., BrokerProcess],
    small_disk: Callable[[Path, int], None],
) -> None:
    broker = brokers(zookeeper.fresh_path())
    folder = Path(broker.properties["log.dirs"])
    small_disk(folder, 1 << 16)
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(1 << 16))
    assert_one_line(
        broker.start(), 1, "no log directory is left", "No space left on device", "free space there"
    )
    ballast.unlink()
    assert broker.serving().running
    broker.signal(signal.SIGKILL)
