"""The control plane: unseen restarts, controllers that wake up, late requests."""

from __future__ import annotations

from functools import partial

import trio

from highwater.broker.server import Broker, BrokerError
from highwater.kafka import znodes
from highwater.simulation.cluster import PORT, Shape
from highwater.simulation.scenarios.script import TP, Scenario, Stage
from highwater.simulation.wire_tap import (
    LEADER_AND_ISR,
    REQUEST,
    STALE,
    STOP_REPLICA,
    UPDATE_METADATA,
    Sent,
)
from highwater.simulation.workloads.plain_client import Failed, SimClient

LATE_S = 10.0
"""Longer than the controller waits for an answer."""
THREE = Shape(brokers=3, min_isr=2, lag_ms=3000)


async def _deliver(stage: Stage, broker: int, sent: Sent) -> int:
    """Sends it as its old controller would on waking up; gives the error of the answer."""
    for _ in range(20):
        try:
            port = stage.cluster.control_port
            return await stage.client.control(f"broker-{broker}", port, sent)
        except Failed:
            await trio.sleep(0.1)
    raise AssertionError(f"broker {broker} does not answer")


async def _leader_and_what_made_it(stage: Stage) -> tuple[int | None, int, Sent]:
    """The controller, a leader on another broker, and the LeaderAndIsr that made it lead."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    controller = stage.cluster.controller()
    victim = next(b for b in (1, 2, 3) if b != controller)
    await stage.lead(victim)
    sent = [s for s in stage.cluster.tap.control[f"broker-{victim}"] if s.api_key == LEADER_AND_ISR]
    stage.check(sent, "nothing was sent to it")
    return controller, victim, sent[-1]


async def fast_bounce(stage: Stage) -> None:
    """KIP-380: a broker is back before its session is over, and then gets a request meant for its
    earlier life.  It must refuse that."""
    controller, victim, sent = await _leader_and_what_made_it(stage)
    epoch = stage.epoch()
    stage.cluster.kill(victim)
    stage.cluster.start(victim)
    await stage.until(lambda: stage.epoch() > epoch, "the bounce was seen")
    await stage.whole()
    stage.check(stage.cluster.controller() == controller, "the controller moved")
    error = await _deliver(stage, victim, sent)
    stage.check(error in STALE, f"it took a request for its earlier life (error {error})")
    await stage.insist(lambda: stage.send("two"))
    await stage.equal_logs((1, 2, 3))
    stage.in_order(
        f"broker-{victim} .*is killed",
        f"bounced brokers \\[{victim}\\]",
        f"broker-{victim} .*t-0: follows",
    )


async def early_request(stage: Stage) -> None:
    """A request to a broker's earlier life waits in the listen queue when it starts again (seed
    631 of November 2026).  It must refuse that too, though it does not yet know its new epoch."""
    _, victim, sent = await _leader_and_what_made_it(stage)
    epoch = stage.epoch()
    stage.cluster.simulation.zookeeper.slow_s = 0.1
    stage.cluster.kill(victim)
    stage.cluster.start(victim)
    error = await _deliver(stage, victim, sent)
    stage.check(error in STALE, f"it took a request for its earlier life (error {error})")
    stage.cluster.simulation.zookeeper.slow_s = 0.0
    await stage.until(lambda: stage.epoch() > epoch, "the bounce was seen")
    await stage.insist(lambda: stage.send("two"))
    await stage.equal_logs((1, 2, 3))
    stage.in_order(f"broker-{victim} .*is killed", f"broker {victim} serves", "t-0: follows")


async def late_update(stage: Stage) -> None:
    """The network delays an UpdateMetadata until its controller has given up the connection, and
    sent newer news over another (seed 2520 of November 2026): it must not be applied then."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    held = stage.arm(UPDATE_METADATA, REQUEST, LATE_S, 1, 3)
    await stage.lead(2)
    await stage.until(lambda: held.fired, "the controller tells broker 3")
    arrives = trio.current_time() + LATE_S
    await stage.lead(1)

    def knows() -> bool:
        services = stage.cluster.nodes[3].services
        known = services.metadata.partition(TP) if services is not None else None
        return known is not None and (known.leader, known.leader_epoch) == (1, stage.epoch())

    await stage.until(knows, "it is told all over another connection")
    stage.check(trio.current_time() < arrives, "what is held has come already")
    await stage.until(lambda: trio.current_time() > arrives + 1, "it comes")
    stage.check(knows(), "it took what came late")
    await stage.insist(lambda: stage.send("two"))
    await stage.equal_logs((1, 2, 3))
    stage.in_order("does not take the controller's requests", "came too late")


async def unseen_bounce(stage: Stage) -> None:
    """The controller itself loses power with an unflushed tail, is back before its session is over,
    and is elected controller again: no broker knows of its earlier life.  It must leave the ISR
    before any broker leads, and must not go on leading in the same epoch."""
    await stage.start(1, 2, 3)
    leader = stage.cluster.controller()
    assert leader is not None
    await stage.lead(leader)
    await stage.whole()
    for n in range(100):
        await stage.send(f"value {n}")
    epoch = stage.epoch()
    others = [b for b in (1, 2, 3) if b != leader]
    stage.check(stage.lose_power(leader) > 0, "nothing was lost")
    # no other broker becomes the controller
    for other in others:
        stage.cluster.freeze(other)
    stage.cluster.power_on(leader)
    await stage.until(
        lambda: stage.cluster.nodes[leader].ready.is_set() and stage.isr() != (), "it is back"
    )
    for other in others:
        stage.cluster.thaw(other)
    await stage.until(lambda: stage.epoch() > epoch and stage.leader() > 0, "somebody is elected")
    await stage.equal_logs((1, 2, 3))
    values = await stage.values()
    stage.check(values[:100] == [f"value {n}" for n in range(100)], "acknowledged records are gone")
    stage.in_order(f"broker-{leader} .*loses power", f"broker-{leader} .*starts", "t-0: leader")


async def zombie_controller(stage: Stage) -> None:
    """A controller is stopped, replaced, and wakes up: its writes and requests are refused."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    old = stage.cluster.controller()
    assert old is not None
    victim = next(b for b in (1, 2, 3) if b != old)
    await stage.lead(victim)
    sent = list(stage.cluster.tap.control[f"broker-{victim}"])
    stage.cluster.freeze(old)
    stage.cluster.simulation.zookeeper.delete(znodes.CONTROLLER)
    await stage.until(
        lambda: stage.cluster.controller() not in (old, None), "another is the controller"
    )
    await stage.until(
        lambda: stage.cluster.nodes[victim].services is not None, "the broker is there"
    )
    services = stage.cluster.nodes[victim].services
    assert services is not None
    await stage.until(lambda: services.fence.controller_epoch >= 2, "it has told the brokers")
    stage.cluster.thaw(old)
    error = await _deliver(stage, victim, sent[-1])
    stage.check(error in STALE, f"a request of the former controller was taken (error {error})")
    await stage.insist(lambda: stage.send("two"))
    await stage.equal_logs((1, 2, 3))
    stage.in_order(
        f"broker-{old} .*is paused", f"broker-{old} .*goes on", f"broker {old} is no longer the"
    )


async def delayed_stop_replica(stage: Stage) -> None:
    """A replica is taken away and given back; then the StopReplica with deletion arrives again,
    late, from the old controller.  The replica must stay."""
    await stage.start(1, 2)
    await stage.send("one")
    tap = stage.cluster.tap
    await stage.insist(lambda: stage.client.reassign(TP, [1, 3]))
    await stage.until(
        lambda: any(s.api_key == STOP_REPLICA for s in tap.control["broker-2"]), "2 is stopped"
    )
    await stage.whole()
    late = [s for s in tap.control["broker-2"] if s.api_key == STOP_REPLICA][-1]
    await stage.insist(lambda: stage.client.reassign(TP, [1, 2]))
    await stage.until(lambda: stage.rules.partitions[TP].assigned == (1, 2), "2 is given back")
    await stage.whole()
    old = stage.cluster.controller()
    stage.cluster.simulation.zookeeper.delete(znodes.CONTROLLER)
    epoch = late.epochs[0]

    def told() -> bool:
        services = stage.cluster.nodes[2].services
        return services is not None and services.fence.controller_epoch > epoch

    await stage.until(told, f"another controller than {old} has told broker 2")
    error = await _deliver(stage, 2, late)
    stage.check(error in STALE, f"a late StopReplica was taken (error {error})")
    stage.check(stage.end(2) == 1, "the replica is gone")
    await stage.insist(lambda: stage.send("two"))
    await stage.equal_logs((1, 2))
    stage.in_order(r"t-0: .*ISR \[1, 3\]", r"t-0: .*ISR \[1, 2\]", "/controller is None")


async def whole_restart(stage: Stage) -> None:
    """All brokers die at once and come back, and clients ask each of them for metadata from the
    moment it listens.  No broker answers before a controller has told it of the brokers: from an
    answer without any, librdkafka concludes that there is no broker left to ask."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    for broker in (1, 2, 3):
        stage.cluster.kill(broker)
    answered: list[int] = []

    async def ask(broker: int) -> None:
        name = f"stranger-{broker}"
        client = SimClient(stage.new_world(name), name, [(f"broker-{broker}", PORT)])
        while True:
            try:
                await client.refresh([TP.topic])  # which fails where no broker is named
            except Failed:
                await trio.sleep(0.002)
                continue
            answered.append(broker)
            return

    async with trio.open_nursery() as nursery:
        for broker in (1, 2, 3):
            nursery.start_soon(ask, broker)
            stage.cluster.start(broker)
    stage.check(sorted(answered) == [1, 2, 3], "not everyone was asked")
    await stage.insist(lambda: stage.send("two"))
    await stage.equal_logs((1, 2, 3))
    stage.in_order("broker-1 .*is killed", "broker-1 .*starts", "t-0: leader")


async def two_processes(stage: Stage) -> None:
    """A second process with the broker id of a running one, on another machine: it gives up with
    one clear line, and the cluster does not notice."""
    await stage.start(1, 2, 3)
    await stage.send("one")
    epoch, leader = stage.epoch(), stage.leader()
    world = stage.new_world("elsewhere")
    world.disk.make_dirs("/data")
    config = stage.cluster.shape.config(1, "elsewhere")
    ended: list[BaseException] = []

    async def program() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(Broker(config, world, "elsewhere").run, trio.Event()))

    async def live() -> None:
        await world.process.run(program)
        if world.process.failure is not None:
            ended.append(world.process.failure)

    stage.nursery.start_soon(live)
    await stage.until(lambda: ended, "the second process gives up")
    error: BaseException = ended[0]
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    stage.check(isinstance(error, BrokerError), f"it failed by {error!r}")
    stage.check("broker.id 1 is registered by broker-1:" in str(error), f"it said: {error}")
    stage.check((stage.epoch(), stage.leader()) == (epoch, leader), "the cluster noticed")
    await stage.send("two")
    stage.check(await stage.values() == ["one", "two"], "records are gone")


SCENARIOS = (
    Scenario("fast-bounce", "KIP-380: a request for an earlier life", THREE, fast_bounce),
    Scenario("early-request", "a request for an earlier life waits", THREE, early_request),
    Scenario(
        "unseen-bounce",
        "the controller loses its tail and is the controller again",
        Shape(brokers=3, min_isr=2, lag_ms=10_000, session_timeout_ms=10_000),
        unseen_bounce,
    ),
    Scenario("zombie-controller", "a former controller wakes up", THREE, zombie_controller),
    Scenario("late-update", "an UpdateMetadata comes over a former connection", THREE, late_update),
    Scenario("delayed-stop-replica", "a StopReplica comes late", THREE, delayed_stop_replica),
    Scenario("whole-restart", "clients ask brokers that know nothing yet", THREE, whole_restart),
    Scenario("two-processes", "two processes with one broker id", THREE, two_processes),
)
