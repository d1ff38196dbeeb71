"""Only the readers of records that are not in memory wait for the disk.

Events in between (a truncation, a new leader, a file that goes) do not show in their answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from highwater.broker.handlers import fetch
from highwater.broker.log import segment
from highwater.broker.replica import feed
from highwater.kafka.wire.fetch import FetchPartition
from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(4))
def test_a_third_of_all_reads_wait_for_the_disk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = 0
    read_at_once = fetch.FetchOperation.read_at_once

    def counted(operation: fetch.FetchOperation, partitions: Sequence[FetchPartition]) -> bool:
        nonlocal looked_up
        done = read_at_once(operation, partitions)
        looked_up += not done
        return done

    from_disk = feed.Feed._from_disk

    async def counted_feed(of: feed.Feed, request: object) -> None:
        nonlocal looked_up
        looked_up += 1
        await from_disk(of, request)

    monkeypatch.setattr(fetch.FetchOperation, "read_at_once", counted)
    monkeypatch.setattr(feed.Feed, "_from_disk", counted_feed)
    monkeypatch.setattr(segment, "TAIL_BATCHES", 4)  # few batches have a known place
    monkeypatch.setattr(segment, "READERS", 1)
    outcome = simulate(seed, Options(seconds=15.0, cold_reads=True))
    assert outcome.violation is None, str(outcome.violation)
    assert outcome.operations["acked"] > 200
    assert outcome.operations["cold reads"] > 100  # a follower that waits is sent what was written
    assert looked_up > 10
