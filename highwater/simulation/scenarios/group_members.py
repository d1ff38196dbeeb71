"""Consumer groups: a coordinator's answers to clients that are no members."""

from __future__ import annotations

from functools import partial

import trio

from highwater.simulation.cluster import Shape
from highwater.simulation.scenarios.script import NotSo, Scenario, Stage
from highwater.simulation.workloads.group_client import NAME, PARTITIONS, TOPIC, GroupClient, Seat
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.transactional.transactions_client import GROUP

NO_MEMBER = Seat("", -1, ())
QUESTIONS = 50
THREE = Shape(brokers=3, min_isr=2, lag_ms=3000)


async def steady_commits(stage: Stage) -> None:
    """A group commits all the time, so that a commit is always in flight.  A client that asks for
    stable offsets is still answered at once, and with no less than was acknowledged before."""
    await stage.start(1, 2, 3)
    await stage.insist(lambda: stage.create(TOPIC, [1, 2, 3], PARTITIONS))
    await stage.whole()
    acked = dict.fromkeys(range(PARTITIONS), -1)

    async def commit(partition: int) -> None:
        client, offset = stage.new_client_of(GroupClient, f"committer-{partition}"), 0
        while True:
            try:
                await client.commit(NO_MEMBER, partition, offset)
            except Failed:
                client.lose(GROUP, NAME)
                await trio.sleep(0.05)
                continue
            acked[partition] = offset
            offset += 1

    for partition in range(PARTITIONS):
        stage.nursery.start_soon(partial(commit, partition))
    await stage.until(lambda: min(acked.values()) >= 0, "commits are acknowledged")
    stranger = stage.new_client_of(GroupClient, "stranger")
    await stage.insist(lambda: stranger.coordinator(GROUP, NAME))
    address = await stranger.coordinator(GROUP, NAME)
    newer = 0
    for _ in range(QUESTIONS):
        before = dict(acked)
        try:
            found = await stranger.committed(address, stable=True)
        except Failed as failed:
            raise NotSo(f"whoever asked for stable offsets was told {failed.name}") from failed
        low = [p for p, offset in before.items() if found[p] < offset]
        stage.check(not low, f"of {before} only {found} is told")
        newer += any(found[p] > offset for p, offset in before.items())
    stage.check(newer > QUESTIONS // 2, "hardly a question met with a commit")
    await stage.until(lambda: min(acked.values()) > QUESTIONS, "commits went on meanwhile")


SCENARIOS = (
    Scenario("steady-commits", "stable offsets of a group that never rests", THREE, steady_commits),
)
