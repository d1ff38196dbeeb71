"""Logs that differ, and become equal again: KIP-101, KIP-279, KIP-320, KIP-595."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial

import trio

from highwater.simulation.cluster import Shape
from highwater.simulation.scenarios.script import TP, Scenario, Stage
from highwater.simulation.wire_tap import ANSWER, FETCH, OFFSETS_FOR_LEADER_EPOCH, REQUEST
from highwater.simulation.workloads.epoch_reader import EpochReader
from highwater.simulation.workloads.plain_client import Failed, SimClient

TWO = Shape(brokers=2, min_isr=1, lag_ms=10_000)
APART = Shape(brokers=3, min_isr=1, lag_ms=10_000)
"""The third broker is the controller, and has no replica."""
THREE = Shape(brokers=3, min_isr=2, lag_ms=10_000)


async def kip_101_loss(stage: Stage) -> None:
    """The follower has the record but not yet the HW that covers it, restarts, and then leads."""
    await stage.start(1, 2)
    await stage.send("one")
    # the next fetch of 2 says that it has "two"; the answer, with the HW, does not arrive
    held = stage.arm(FETCH, ANSWER, 2.0, 2, 1)
    await stage.send("two")
    await stage.until(lambda: held.fired, "the follower has fetched past the record")
    stage.cluster.kill(2)
    stage.cluster.start(2)
    await stage.until(lambda: stage.isr() == (1,), "the follower left the ISR")
    await stage.whole()
    stage.cluster.kill(1)
    await stage.until(lambda: stage.leader() == 2, "the follower leads")
    stage.check(await stage.values() == ["one", "two"], "an acknowledged record was cut away")
    stage.cluster.start(1)
    await stage.equal_logs((1, 2))
    stage.in_order(
        "broker-2 .*is killed",
        "broker-2 .*t-0: follows 1, epoch .*, HW [01], LEO 2",
        "broker-1 .*is killed",
        "broker-2 .*t-0: leads",
    )


async def kip_101_divergence(stage: Stage) -> None:
    """A leader that is cut off appends a record of its own; the next leader appends another one at
    that offset.  The first comes back."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    stage.isolate(1)
    await stage.send("only here", acks=1, to=1)
    stage.check(stage.end(1) == 2, "the old leader has not appended")
    await stage.until(lambda: stage.leader() not in (1, -1), "another leads")
    await stage.insist(lambda: stage.send("two"))
    stage.heal()
    await stage.equal_logs((1, 2, 3))
    stage.check((await stage.values())[:2] == ["one", "two"], "the wrong record survived")
    stage.in_order(
        r"t-0: leader [23], epoch",
        r"broker-1 .*t-0: follows [23]",
        r"broker-1 .*t-0: cut 1 batches from 1-1 of epoch 0",
    )


async def kip_279(stage: Stage) -> None:
    """Two fast changes of the leader: the follower's last epoch is unknown to the leader, and one
    question does not find the point where the two logs part."""
    await stage.start(1, 2, controller=3)
    await stage.send("one")
    await stage.until(lambda: stage.end(2) == 1, "the follower has the record")
    stage.cut(1, 2)  # 2 does not get the next records, and 1 does not get to cut it
    await stage.send("of 1", acks=1, to=1)
    await stage.lead(2)
    await stage.insist(lambda: stage.send("of 2", acks=1))
    stage.check(stage.end(1) == stage.end(2) == 2, "the logs have not parted")
    stage.check(stage.log(1)[1] != stage.log(2)[1], "the logs are equal")
    await stage.lead(1)
    stage.heal()
    await stage.equal_logs((1, 2))
    stage.check(await stage.values() == ["one", "of 1"], "the log is not the leader's")
    stage.in_order(
        "broker-2 .*t-0: leads",
        "broker-1 .*t-0: leads",
        "broker-2 .*t-0: cut 1 batches from 1-1",
    )


async def kip_320(stage: Stage) -> None:
    """A client with an older or a newer leader epoch than the broker's gets an error."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    old = stage.epoch()
    stage.isolate(1)
    await stage.until(lambda: stage.leader() not in (1, -1), "another leads")
    await stage.insist(lambda: stage.send("two"))
    new, leader = stage.epoch(), stage.leader()
    client = stage.client
    client.believe(TP, 1, "broker-1", 9092, new)
    await stage.fails(lambda: client.fetch(TP, 0), "UNKNOWN_LEADER_EPOCH")
    client.believe(TP, leader, f"broker-{leader}", 9092, old)
    await stage.fails(lambda: client.fetch(TP, 0), "FENCED_LEADER_EPOCH")
    stage.heal()
    await stage.equal_logs((1, 2, 3))
    stage.in_order("t-0: leader 1, epoch 0", r"t-0: leader [23], epoch", "broker-1 .*t-0: follows")


async def delayed_epoch_answer(stage: Stage) -> None:
    """The answer to OffsetsForLeaderEpoch arrives when the asking follower has become the leader
    itself, and appended: it must not cut by it."""
    await stage.start(1, 2)
    await stage.send("one")
    await stage.until(lambda: stage.end(2) == 1, "the follower has the record")
    asked = [stage.arm(OFFSETS_FOR_LEADER_EPOCH, ANSWER, 3.0, 1, 2) for _ in range(6)]
    for _ in range(6):  # it fetches again in each new epoch
        stage.arm(FETCH, ANSWER, 3.0, 2, 1)
    await trio.sleep(0.5)  # the running poll is over
    await stage.send("two", acks=1, to=1)
    await stage.lead(2)
    await stage.until(lambda: asked[0].fired, "the old leader asks where to cut")
    await stage.lead(1)
    await stage.insist(lambda: stage.send("three", acks=1))
    before = stage.log(1)
    await trio.sleep(4.0)  # the answer has come
    stage.check(stage.log(1)[: len(before)] == before, "a leader cut its log")
    await stage.equal_logs((1, 2))
    stage.check(await stage.values() == ["one", "two", "three"], "records of the leader are gone")
    stage.in_order("broker-1 .*t-0: follows 2", "broker-1 .*t-0: leads")


async def lossy_alone(stage: Stage) -> None:
    """An ISR of one loses power with an unflushed tail: loss is expected here, must be seen, and
    the others take over what is left of the log."""
    await stage.start(1, 2, 3)
    for n in range(5):
        await stage.send(f"kept {n}")
    stage.cluster.kill(2)
    stage.cluster.kill(3)
    await stage.until(lambda: stage.isr() == (1,), "the leader is alone in the ISR")
    for n in range(200):
        await stage.send(f"tail {n}", acks=1, to=1)
    epoch = stage.epoch()
    stage.check(stage.lose_power(1) > 0, "nothing was lost")
    stage.cluster.power_on(1)
    await stage.until(lambda: stage.epoch() > epoch and stage.leader() == 1, "it leads anew")
    await stage.insist(lambda: stage.send("after"))
    stage.cluster.start(2)
    stage.cluster.start(3)
    await stage.equal_logs((1, 2, 3))
    stage.check(stage.rules.expected_losses > 0, "the loss was not counted")
    stage.in_order("broker-1 .*loses power", "broker-1 .*t-0: leads, epoch")


async def lost_before_committed(stage: Stage) -> None:
    """A leader stands still with a fetch before it that tells of a record; the follower that sent
    it loses the record with its power, and leads.  When the former leader goes on, it commits what
    is lost: its ISR of that time lost a member's power, so loss is expected."""
    await stage.start(1, 2, controller=3)
    await stage.send("one")
    stage.cluster.stop(2)  # which flushes what it has
    await stage.until(lambda: not stage.cluster.nodes[2].running, "the follower has stopped")
    stage.cluster.start(2)
    await stage.whole()
    held = stage.arm(FETCH, REQUEST, 0.2, 2, 1)
    stage.nursery.start_soon(partial(_try_to_send, stage, "lost"))
    await stage.until(lambda: held.fired and stage.end(2) == 2, "the follower has the record")
    stage.cluster.freeze(1)
    await trio.sleep(3.0)  # the fetch lies before the leader now
    stage.check(stage.lose_power(2) == 1, "the follower lost nothing")
    await stage.until(lambda: stage.isr() == (2,), "the leader's session has expired first")
    stage.cluster.power_on(2)
    await stage.until(lambda: stage.leader() == 2, "the follower leads")
    await stage.insist(lambda: stage.send("two"))
    stage.cluster.thaw(1)
    await stage.equal_logs((1, 2))
    stage.check(await stage.values() == ["one", "two"], "the lost record is there")
    stage.in_order("broker-2 .*loses power", "broker-2 .*t-0: leads", "broker-1 .*t-0: cut 1")


async def _try_to_send(stage: Stage, value: str) -> None:
    with suppress(Failed):
        await stage.send(value, to=1)


async def parted_reader(stage: Stage) -> None:
    """A leader that was alone loses power, and records that a consumer has read; it leads anew, and
    its log grows beyond the consumer's position before the consumer asks again (KIP-595)."""
    await stage.start(1, 2, 3)
    await stage.send("kept")
    stage.cluster.kill(2)
    stage.cluster.kill(3)
    await stage.until(lambda: stage.isr() == (1,), "the leader is alone in the ISR")
    for n in range(100):
        await stage.send(f"tail {n}", acks=1, to=1)
    counts: Counter[str] = Counter()
    reader = EpochReader(stage.rules, counts, counts)
    client = stage.new_client_of(SimClient, "epochs")
    while not await reader.poll(client, TP) or len(reader.held[TP]) < stage.end(1):
        pass
    epoch, lost = stage.epoch(), stage.lose_power(1)
    stage.check(lost > 0, "nothing was lost")
    stage.cluster.power_on(1)
    await stage.until(lambda: stage.epoch() > epoch and stage.leader() == 1, "it leads anew")
    for n in range(lost + 5):
        await stage.insist(lambda n=n: stage.send(f"after {n}"))  # type: ignore[misc]
    while not await reader.poll(client, TP) or len(reader.held[TP]) < stage.end(1):
        pass
    reader.compare(TP, {at: value.encode() for at, value in enumerate(await stage.values())})
    stage.check(counts["epochs: went back"], "the reader was not told")
    stage.check(counts["epochs: dropped"] == lost, "the reader dropped more, or less, than is lost")
    stage.in_order("broker-1 .*loses power", "broker-1 .*t-0: leads, epoch")


SCENARIOS = (
    Scenario("kip-101-loss", "a restart must not cut what is committed", TWO, kip_101_loss),
    Scenario("kip-101-divergence", "two records at one offset", THREE, kip_101_divergence),
    Scenario("kip-279", "an epoch that the leader never saw", APART, kip_279),
    Scenario("kip-320", "clients are fenced by leader epochs", THREE, kip_320),
    Scenario(
        "delayed-epoch-answer",
        "an OffsetsForLeaderEpoch answer from before the last election",
        TWO,
        delayed_epoch_answer,
    ),
    Scenario(
        "lossy-alone",
        "an ISR of one, and a power loss",
        Shape(brokers=3, min_isr=1, lag_ms=2000),
        lossy_alone,
    ),
    Scenario(
        "lost-before-committed",
        "a former leader commits what its follower lost with its power",
        APART,
        lost_before_committed,
    ),
    Scenario(
        "parted-reader",
        "a consumer's records are lost with the power, and its position is not",
        Shape(brokers=3, min_isr=1, lag_ms=2000),
        parted_reader,
    ),
)
