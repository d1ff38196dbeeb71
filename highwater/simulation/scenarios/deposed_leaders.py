"""Leaders that are replaced and do not know it, and their clients."""

from __future__ import annotations

from functools import partial

import trio

from highwater.kafka.types import TopicPartition
from highwater.simulation.cluster import DATA, Shape
from highwater.simulation.scenarios.script import TP, Scenario, Stage
from highwater.simulation.wire_tap import ANSWER, FETCH, LEADER_AND_ISR, REQUEST
from highwater.simulation.workloads.plain_client import Failed

THREE = Shape(brokers=3, min_isr=2, lag_ms=10_000)


async def zombie_leader(stage: Stage) -> None:
    """A leader is stopped for longer than its session, replaced, and wakes up: its later appends
    are never acknowledged with acks=all, and are gone in the end."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    stage.isolate(1)
    await stage.until(lambda: stage.leader() not in (1, -1), "another leads")
    error = await stage.fails(lambda: stage.send("of a zombie", to=1))
    stage.check(error in ("TIMEOUT", "REQUEST_TIMED_OUT"), f"the zombie answered {error}")
    stage.check(stage.end(1) == 2, "the zombie has not even appended")
    await stage.insist(lambda: stage.send("two"))
    stage.heal()
    await stage.equal_logs((1, 2, 3))
    stage.check(await stage.values() == ["one", "two"], "the zombie's record is there")
    stage.in_order("t-0: leader [23], epoch", "broker-1 .*t-0: follows", "broker-1 .*t-0: cut 1")


async def hw_after_failover(stage: Stage) -> None:
    """The new leader's HW is behind the one that the old leader exposed: until it has caught up, it
    does not tell the log's end, rather than tell a lower one (KIP-207)."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    held = [stage.arm(FETCH, ANSWER, 3.0, follower, 1) for follower in (2, 3)]
    await stage.send("two")
    await stage.until(lambda: all(h.fired for h in held), "both followers have the record")
    end = await stage.client.list_offset(TP, -1)
    stage.check(end == 2, "the record was not exposed")
    stage.cluster.kill(1)
    await stage.until(lambda: stage.leader() in (2, 3), "another leads")
    leader = stage.leader()
    behind = stage.arm(FETCH, ANSWER, 1.5, 5 - leader, leader)
    answers: list[object] = []
    with trio.move_on_after(5.0):
        while not answers or answers[-1] != 2:
            stage.client.believe(TP, leader, f"broker-{leader}", 9092)
            try:
                answers.append(await stage.client.list_offset(TP, -1))
            except Failed as failed:
                answers.append(failed.name)
            await trio.sleep(0.001)
    stage.check(behind.fired, "the other follower never fetched")
    stage.check(1 not in answers, f"the log's end went back: {answers}")
    stage.check("OFFSET_NOT_AVAILABLE" in answers, f"the HW was never behind: {answers[:5]}")
    stage.check(answers[-1] == 2, "the HW never caught up")
    stage.cluster.start(1)
    await stage.equal_logs((1, 2, 3))
    stage.in_order("broker-1 .*is killed", "broker-[23] .*t-0: leads, epoch .*, HW 1, LEO 2")


def _led_by_another(stage: Stage, broker: int) -> bool:
    return stage.leader() not in (broker, -1)


async def false_alarms(stage: Stage) -> None:
    """The failure detector suspects a broker that only pauses, again and again: leaders move within
    the ISR, no session ends, nothing is lost, and all leaders come back."""
    await stage.start(1, 2, 3)
    sent = []
    for n in range(3):
        victim = stage.leader()
        if stage.cluster.controller() == victim:
            await stage.lead(next(b for b in (1, 2, 3) if b != victim))
            victim = stage.leader()
        fabric, node = stage.cluster.simulation.fabric, stage.cluster.nodes[victim]
        stage.cluster.freeze(victim)
        for other in stage.cluster.nodes.values():
            fabric.break_connections(other.host, node.host)
        await stage.until(partial(_led_by_another, stage, victim), "another leads")
        stage.cluster.thaw(victim)
        await stage.insist(partial(stage.send, f"value {n}"))
        sent.append(f"value {n}")
        await stage.whole()
        await trio.sleep(15.0)  # suspicion is rate-limited: excess alarms are ignored
    found = await stage.values()
    stage.check(set(sent) <= set(found), f"{sent} were acknowledged, and {found} is there")
    stage.in_order(
        "does not answer: leaders move away", "answers again", "does not answer: leaders move away"
    )
    gone = [e for e in stage.cluster.trace.last(100_000) if "is gone" in e and "broker" in e]
    stage.check(not gone, f"a session ended: {gone}")


async def suspected_meanwhile(stage: Stage) -> None:
    """A topic is made while one of its brokers pauses, and counts as gone: told of it when it goes
    on, it serves the topic under its own properties."""
    await stage.start(1, 2, 3)
    fabric, paused = stage.cluster.simulation.fabric, stage.cluster.nodes[3]
    stage.cluster.freeze(3)
    for other in stage.cluster.nodes.values():
        fabric.break_connections(other.host, paused.host)
    await stage.until(lambda: stage.happened("broker 3 does not answer"), "it is suspected")
    config = {"min.insync.replicas": "1", "cleanup.policy": "compact"}
    await stage.insist(lambda: stage.create("made", [1, 2, 3], 1, config))
    made = TopicPartition("made", 0)
    await stage.until(lambda: stage.leader(made) == 1, "the topic is there")
    stage.check(3 not in stage.isr(made), "it has all three in the ISR already")
    stage.cluster.thaw(3)
    await stage.until(lambda: 3 in stage.isr(made), "it follows")
    assert paused.services is not None
    partition = paused.services.replicas.partitions[made]
    stage.check(partition.min_insync_replicas == 1, "it requires another number in the ISR")
    stage.check(partition.require_log().config.compacts, "it would not compact the topic")
    gone = [e for e in stage.cluster.trace.last(100_000) if "broker 3 is gone" in e]
    stage.check(not gone, f"its session ended: {gone}")


async def slow_zookeeper(stage: Stage) -> None:
    """A session expires while ZooKeeper is slow: the broker comes back in a new session and under a
    new broker epoch, and no epoch has two leaders."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    service = stage.cluster.simulation.zookeeper
    service.slow_s = 0.4
    services = stage.cluster.nodes[1].services
    stage.check(services is not None and services.session is not None, "broker 1 has no session")
    assert services is not None
    assert services.session is not None
    before = services.broker_epoch
    service.expire(services.session.session_id)
    await stage.until(lambda: stage.leader() not in (1, -1), "another leads")
    await stage.insist(lambda: stage.send("two"))
    await stage.until(lambda: services.broker_epoch > before, "it has a new broker epoch")
    service.slow_s = 0.0
    await stage.equal_logs((1, 2, 3))
    stage.check((await stage.values())[:1] == ["one"], "a record is gone")
    stage.in_order("broker 1 is gone", "t-0: leader [23], epoch", "broker 1 is there")


async def missed_terms(stage: Stage) -> None:
    """A follower misses several terms, and its fetch from before them is late.  The leader, which
    leads again, refuses the fetch (KIP-320).  It counts as no progress, since the record below it
    was cut away meanwhile."""
    await stage.start(1, 2, 3, controller=3)
    await stage.send("one")
    await stage.until(lambda: stage.end(2) == stage.end(3) == 1, "everyone has the record")
    await stage.hold(FETCH, ANSWER, 2.0, 3, 1)
    await stage.send("only 2 gets it", acks=1, to=1)
    await stage.until(lambda: stage.end(2) == 2, "the follower has it")
    stage.check(stage.end(3) == 1, "the other has it as well")
    await stage.hold(FETCH, REQUEST, 2.0, 2, 1)
    stage.arm(LEADER_AND_ISR, REQUEST, 6.0, 3, 2)  # and everything after it
    stage.arm(FETCH, REQUEST, 2.0, 3, 1)  # on the way to its term it must not get the record
    await stage.lead(3)
    await stage.until(lambda: stage.end(1) == 1, "the leader of before has cut it away")
    await stage.lead(1)
    await stage.insist(lambda: stage.send("two"))
    await stage.equal_logs((1, 2, 3))
    stage.check((await stage.values())[:2] == ["one", "two"], "the wrong record survived")
    stage.in_order(
        "broker-3 .*t-0: leads",
        "broker-1 .*t-0: cut 1 batches from 1-1",
        "broker-1 .*t-0: leads",
        "broker-2.* fetcher fenced by leader 1",
        "broker-2 .*t-0: cut 1 batches from 1-1",
    )


async def taken_away(stage: Stage, is_down: bool) -> None:
    """A leader's partition moves to other brokers while it is cut off, or down: back, it does not
    lead in its old epoch for ever, and nothing of the replica stays on its disk."""
    await stage.start(1, 2, controller=3)
    await stage.send("one")
    if is_down:
        stage.cluster.kill(1)
    else:
        stage.isolate(1)
    await stage.until(lambda: stage.leader() == 2, "another leads")
    await stage.insist(lambda: stage.client.reassign(TP, [2, 3]))
    await stage.until(lambda: sorted(stage.isr()) == [2, 3], "the partition has moved")
    await stage.insist(lambda: stage.send("two"))
    if is_down:
        stage.cluster.start(1)
    else:
        stage.check(stage.place(1) == (0, 1), "the old leader has heard of it")
        stage.heal()
    host = stage.cluster.nodes[1].host
    await stage.until(lambda: host.disk.find(f"{DATA}/{TP}") is None, "its folder is gone")
    await stage.whole()
    if not is_down:  # else the client's connection is none any more
        refusals = "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"
        await stage.fails(lambda: stage.send("to nobody", acks=1, to=1), *refusals)
    await stage.equal_logs((2, 3))
    stage.check(await stage.values() == ["one", "two"], "the values are others")
    stage.in_order(r"t-0: leader 2, .*ISR \[(2, 3|3, 2)\]", r"broker-1\..*the one here, of epoch")


SCENARIOS = (
    Scenario("zombie-leader", "a leader that was replaced wakes up", THREE, zombie_leader),
    Scenario("missed-terms", "a follower that was not told is refused", THREE, missed_terms),
    Scenario("hw-after-failover", "a new leader's HW is behind", THREE, hw_after_failover),
    Scenario(
        "false-alarms",
        "the failure detector suspects brokers that live",
        Shape(brokers=3, min_isr=2, lag_ms=3000, session_timeout_ms=30_000),
        false_alarms,
    ),
    Scenario(
        "taken-away",
        "a leader is away while its partition moves",
        THREE,
        partial(taken_away, is_down=False),
    ),
    Scenario(
        "taken-away-down",
        "a leader is down while its partition moves",
        THREE,
        partial(taken_away, is_down=True),
    ),
    Scenario(
        "suspected-meanwhile",
        "a topic is made while one of its brokers pauses",
        Shape(brokers=3, min_isr=2, lag_ms=3000, session_timeout_ms=30_000),
        suspected_meanwhile,
    ),
    Scenario("slow-zookeeper", "a session expires under a slow ZooKeeper", THREE, slow_zookeeper),
)
