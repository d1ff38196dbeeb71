"""Events that are staged to meet: each joint plays to its end, and no promise breaks by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest
import trio

from highwater.kafka.types import TopicPartition
from highwater.simulation.cluster import Shape
from highwater.simulation.faults import improvised as draw
from highwater.simulation.faults import joint_players
from highwater.simulation.faults.improvised import IMPROVISED, improvised
from highwater.simulation.faults.joint_acts import (
    TRANSACTIONS,
    Joint,
    LosePower,
    Pass,
    Time,
    UntilDown,
    UntilHeld,
    UntilWritten,
)
from highwater.simulation.faults.joint_players import Joints
from highwater.simulation.faults.joint_writer import Writers
from highwater.simulation.faults.joints import JOINTS, KINDS, LAST
from highwater.simulation.faults.staged_faults import Fault, NothingToBreak, StagedFaults
from highwater.simulation.options import Options
from highwater.simulation.scenarios.script import TP, Scenario, Stage, play
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import replay_command
from highwater.simulation.workloads.administrators import GOVERNED
from highwater.simulation.workloads.plain_client import Failed
from highwater.simulation.workloads.transactional.transaction_workload import IDS, Transactions
from highwater.simulation.workloads.transactional.transactions_client import TOPIC, TxnClient
from highwater.simulation.workloads.trimmed import TRIMMED
from highwater.simulation.workloads.workload import make_batch

SHAPE = Shape(session_timeout_ms=3000, lag_ms=1500)
OWN = [name for name, joint in JOINTS.items() if joint.topic is None]
MARKERS = [name for name, joint in JOINTS.items() if joint.topic == TRANSACTIONS]
ADMIN = [name for name, joint in JOINTS.items() if joint.topic in (TRIMMED, GOVERNED)]


async def traffic(stage: Stage, tp: TopicPartition = TP) -> None:
    """Only where records come is a follower that stands still behind."""
    while True:
        with suppress(Failed):
            if tp == TP:
                await stage.send("meanwhile", acks=1)
            else:
                await stage.client.produce(tp, make_batch([b"meanwhile"], None, 0), -1)
        await trio.sleep(0.05)


async def one(stage: Stage, name: str, writers: Writers | None = None, number: str = "any") -> None:
    """Plays it to its end; raises NothingToBreak where it does not come there."""
    random = stage.cluster.kernel.random("staged")
    done: Counter[str] = Counter()
    staged = StagedFaults(stage.cluster, stage.new_client("admin"), [TP], random, done)
    players = Joints(stage.cluster, stage.new_client("joiner"), [TP], staged, writers)
    await players.play(Fault(0.0, name, number, 0.0), stage.cluster.nodes[1])


def played(name: str, course: Callable[[Stage], Awaitable[None]]) -> None:
    outcome = play(Scenario(name, "a joint", SHAPE, course))
    assert outcome.ok, (outcome.problem, outcome.violation, outcome.last_events)


@pytest.mark.parametrize("name", OWN)
def test_a_joint_plays_to_its_end(name: str) -> None:
    async def course(stage: Stage) -> None:
        await stage.start(1, 2, 3, controller=3)
        for number in range(5):
            await stage.send(f"before-{number}")
        stage.nursery.start_soon(traffic, stage)
        await one(stage, name)
        await stage.whole()
        await stage.insist(lambda: stage.send("after"))
        sent = [value for value in await stage.values() if value != "meanwhile"]
        assert sent == [*(f"before-{n}" for n in range(5)), "after"]

    played(name, course)


async def at_work(stage: Stage) -> tuple[Transactions, Writers]:
    """A cluster whose clients write in transactions."""
    await stage.start(1, 2, 3)
    await stage.insist(lambda: stage.create(TOPIC, [1, 2, 3], 2))
    transactions = Transactions(stage.rules, Counter(), Counter())
    for name in IDS:
        client = stage.new_client_of(TxnClient, name)
        stage.nursery.start_soon(client.run, partial(transactions.produce, client, name))
    reader = stage.new_client_of(TxnClient, "committed")
    stage.nursery.start_soon(reader.run, partial(transactions.consume, reader))
    await stage.until(lambda: transactions.count["txn committed"] > 2, "transactions are at work")
    await stage.whole()
    return transactions, Writers(
        stage.cluster, transactions, partial(stage.new_client_of, TxnClient)
    )


async def to_its_end(stage: Stage, name: str, writers: Writers | None = None) -> None:
    """Where one broker leads all, or nothing comes by in time, a joint gives up: again then, with
    another cast."""
    for _ in range(8):
        with suppress(NothingToBreak):
            await one(stage, name, writers)
            return
        await stage.whole()
    raise AssertionError(f"{name} never came to its end")


@pytest.mark.parametrize("name", MARKERS)
def test_a_joint_of_markers_plays_to_its_end(name: str) -> None:
    async def course(stage: Stage) -> None:
        transactions, writers = await at_work(stage)
        await to_its_end(stage, name, writers)
        epoch = r"__transaction_state-\d: leader [123], epoch [1-9]"
        if "dead" not in name and "new" not in name:  # Elect, within a session
            stage.in_order("faults .*HoldNext", "faults .*UntilHeld", epoch)
        if "next transaction" in name:
            stage.in_order("faults .*Write", "faults .*End", epoch, "faults .*Write")
        if name.startswith("a marker over") and "next transaction" in name:
            refused = f"{TOPIC}-[01]: a marker for producer .* came from coordinator epoch"
            stage.in_order("faults .*UntilDelivered", refused)
        await stage.whole()
        before = transactions.count["txn committed"]
        await stage.until(lambda: transactions.count["txn committed"] > before + 2, "they go on")

    played(name, course)


def test_a_leader_that_is_back_is_asked_for_markers_before_it_is_told_that_it_leads() -> None:
    (name,) = (name for name, joint in LAST.items() if joint.topic == TRANSACTIONS)

    def unknown(stage: Stage) -> bool:
        running = [node.services for node in stage.cluster.nodes.values() if node.services]
        answered = [services.metrics.by_name()["WriteTxnMarkers"] for services in running]
        return any("UNKNOWN_TOPIC_OR_PARTITION" in counted.errors for counted in answered)

    async def course(stage: Stage) -> None:
        transactions, writers = await at_work(stage)
        await to_its_end(stage, name, writers)
        assert unknown(stage)
        await stage.whole()
        before = transactions.count["txn committed"]
        await stage.until(lambda: transactions.count["txn committed"] > before + 2, "they go on")

    played(name, course)


@pytest.mark.parametrize("name", ADMIN)
def test_a_joint_with_an_administrator_plays_to_its_end(name: str) -> None:
    async def course(stage: Stage) -> None:
        topic = JOINTS[name].topic
        assert topic is not None
        await stage.start(1, 2, 3)
        await stage.insist(lambda: stage.create(topic, [1, 2, 3], 1))
        await stage.whole()
        tp = TopicPartition(topic, 0)
        stage.nursery.start_soon(traffic, stage, tp)
        await to_its_end(stage, name)
        await stage.whole()
        if topic == TRIMMED:
            services = stage.cluster.nodes[stage.leader(tp)].services
            log = services.replicas.partitions[tp].log if services is not None else None
            assert log is not None
            assert 0 < log.log_start_offset <= stage.cluster.requested.deletions[tp]
        else:
            assert TopicPartition(topic, 1) in stage.rules.partitions
            stage.in_order("faults .*Grow", "controller epoch 2")

    played(name, course)


def test_a_cancelled_move_is_undone_by_its_joint() -> None:
    async def course(stage: Stage) -> None:
        await stage.start(1, 2, 3, controller=3)
        stage.nursery.start_soon(traffic, stage)
        await to_its_end(stage, "a move is cancelled over a controller's change")
        asked = stage.cluster.requested
        assert TP in asked.cancelled
        assert len(asked.moves[TP]) > 2
        await stage.whole()
        assert sorted(stage.rules.partitions[TP].assigned) == [1, 2, 3]

    played("a move", course)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_breaks_where_events_meet(seed: int) -> None:
    outcome = simulate(seed, Options(seconds=20.0, pace=0.5, transactions=True, joints=True))
    assert outcome.violation is None, str(outcome.violation)
    assert sum(outcome.faults[name] for name in KINDS) >= 2
    assert outcome.operations["acked"] > 50


def test_improvised_joints_have_acts_that_can_follow_one_another() -> None:
    topics = [None, *draw.TOPICS]
    seen: Counter[str] = Counter()
    for number in range(500):
        joint = improvised(str(number), topics)
        assert joint == improvised(str(number), topics)
        assert draw.LEAST <= len(joint.acts) <= draw.MOST
        kinds = [type(act).__name__ for act in joint.acts]
        seen.update(kinds)
        for wait, *before in (
            ("UntilHeld", "HoldNext"),
            ("UntilWritten", "LoseAnswer", "DeposeAtWrite"),
            ("Start", "Kill", "LosePower"),
            ("Thaw", "Freeze"),
            ("Heal", "CutFromZooKeeper"),
            ("Cancel", "Move"),
            ("End", "Write"),
        ):
            if wait in kinds:
                assert set(before) & set(kinds[: kinds.index(wait)]), joint
        for at, act in enumerate(joint.acts):
            if isinstance(act, LosePower):  # all that was acknowledged is on the disk
                assert joint.acts[at - 1] == UntilDown(act.who)
    assert len(seen) == 24
    assert min(seen.values()) > 10


@pytest.mark.parametrize("number", range(6))
def test_an_improvised_joint_goes_on_without_what_cannot_be(number: int) -> None:
    async def course(stage: Stage) -> None:
        await stage.start(1, 2, 3)
        stage.nursery.start_soon(traffic, stage)
        with suppress(NothingToBreak):
            await one(stage, IMPROVISED, number=str(number))
        await stage.whole()
        await stage.insist(lambda: stage.send("after"))
        assert "after" in await stage.values()

    played(IMPROVISED, course)


def test_a_wait_for_an_act_that_was_skipped_is_skipped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    acts = (UntilHeld(), UntilWritten(), Pass(Time(0.0, 0.1)))
    waits = Joint(acts, None, skips=True)
    monkeypatch.setattr(joint_players, "improvised", lambda *_: waits)

    async def course(stage: Stage) -> None:
        await stage.start(1, 2, 3)
        await one(stage, IMPROVISED, number="0")
        stage.in_order("faults .*skipped: nothing was to", "faults .*skipped: no write was")

    played(IMPROVISED, course)


def test_other_seeds_stay_what_they_are() -> None:
    """The rest of a seed's plan does not depend on whether there are joints."""
    joints = Options(seconds=8.0, pace=0.3, sql=False, joints=True)
    plain = simulate(5, Options(seconds=8.0, pace=0.3, sql=False)).schedule
    staged = simulate(5, joints).schedule
    assert len(staged) > len(plain) > 0
    assert [fault for fault in staged if fault.kind not in KINDS] == plain
    assert "--joints --trace" in replay_command(5, joints)
