"""Bugs and false alarms that the simulation has found, kept small."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from highwater.broker.log.log_manager import LogManager
from highwater.broker.log.parts import Origin
from highwater.broker.replica.partition import LeaderAndIsr, Partition
from highwater.kafka.types import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition, ZkVersion
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from highwater.simulation.cluster import DATA, Shape
from highwater.simulation.last_events import Trace
from highwater.simulation.options import Options
from highwater.simulation.rules.agreed_log import PartitionTruth
from highwater.simulation.rules.cluster_rules import Rules
from highwater.simulation.scenarios.script import Scenario, Stage, play
from highwater.simulation.seed_run import simulate
from highwater.simulation.workloads.transactional.transaction_workload import Transactions
from highwater.world.api import World
from highwater.world.sim import Kernel, Simulation, run_simulation

TP = TopicPartition("t", 0)


def _state(epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerId(1), LeaderEpoch(epoch), ControllerEpoch(1), isr, ZkVersion(epoch), replicas
    )


def _batch() -> bytearray:
    return build_batch([Record(None, b"v", 1)])


async def _logs(world: World) -> LogManager:
    """A broker's logs, none yet."""
    world.disk.make_dirs(DATA)
    config = Shape().config(1, "broker-1")
    logs = LogManager(world.disk, world.clock, (DATA,), config, on_dir_failure=lambda *_: None)
    await logs.load("cluster", 1)
    return logs


def test_a_replica_that_is_taken_away_counts_while_it_is_in_the_isr() -> None:
    """Seed 26 of November 2026, R1: a reassignment to fewer replicas names the new ones to the
    leader before the ISR has shrunk, and the HW ran ahead of a member of the ISR."""

    async def main(kernel: Kernel) -> None:
        simulation = Simulation(kernel)
        logs = await _logs(simulation.start(simulation.add_host("broker-1")))
        partition = Partition(TP, BrokerId(1), 3000, lambda _: True)
        partition.host(logs.get_or_create(TP, logs.topic_config({})), 0, 1)
        partition.make_leader(_state(0, (1, 2, 3), (1, 2, 3)), 0)
        partition.append(memoryview(_batch()), -1, 0, 0, Origin.CLIENT)
        partition.follower_fetched(2, 1, 0, 1)
        partition.follower_fetched(3, 0, 0, 1)
        assert partition.high_watermark == 0
        partition.make_leader(_state(1, (1, 2), (1, 2, 3)), 2)
        assert partition.high_watermark == 0
        partition.follower_fetched(2, 1, 0, 3)
        assert partition.high_watermark == 0
        partition.make_leader(_state(2, (1, 2), (1, 2)), 4)
        partition.follower_fetched(2, 1, 0, 5)
        assert partition.high_watermark == 1
        _, change = partition.follower_fetched(2, 1, 0, 6)
        assert change is None

    run_simulation(0, main)


def test_a_replica_that_is_made_once_more_is_another() -> None:
    """Seed 3305 --pace 0.3 at b27098a, a false alarm (R7, the HW fell): a controller that takes
    over names a topic that is being deleted, and a broker that had deleted it makes it again."""

    async def main(kernel: Kernel) -> None:
        simulation = Simulation(kernel)
        host = simulation.add_host("broker-1")
        ensemble, trace = simulation.zookeeper.ensemble, Trace(lambda: 0.0)
        rules = Rules(lambda: 0.0, trace, ensemble, {1: host.disk}, DATA, min_isr=1)
        truth = rules.partitions[TP] = PartitionTruth(TP)
        manager: Any = SimpleNamespace(partitions={})
        look = rules.watch(1, manager)
        logs = await _logs(simulation.start(host))
        high_watermarks = []
        for records in (1, 0):
            partition = Partition(TP, BrokerId(1), 3000, lambda _: True)
            partition.host(logs.get_or_create(TP, logs.topic_config({})), 0, 1)
            manager.partitions[TP] = partition
            partition.make_leader(_state(2, (1,), (1,)), 0)
            for _ in range(records):
                partition.append(memoryview(_batch()), -1, 0, 0, Origin.CLIENT)
            look()
            view = rules.replica(truth, 1).view
            assert view is not None
            high_watermarks.append(view.hw)
            del manager.partitions[TP]
            partition.stop(delete=True)
            logs.delete(TP)
            look()
        assert high_watermarks == [1, 0]
        assert rules.violation is None, str(rules.violation)

    run_simulation(0, main)


@pytest.mark.parametrize(
    ("seed", "pace"),
    [
        (631, 1.0),  # R4: a request for an earlier life was taken (scenario early-request)
        (950, 1.0),  # a false alarm, C2: a leader that never had a batch cannot know it again
        (8511, 0.3),  # a false alarm, R7: a replica kept its power, and its leader's loss was due
        (9578, 0.3),  # a false alarm, R1: a zombie leads a topic that others have deleted
    ],
)
def test_a_seed_that_broke_a_rule_is_clean(seed: int, pace: float) -> None:
    outcome = simulate(seed, Options(pace=pace))
    assert outcome.ok, str(outcome.violation)


@pytest.mark.parametrize("seed", [538, 1510])
def test_what_an_unclean_election_gives_up(seed: int) -> None:
    """False alarms: a former leader that stood still was held to records that its replica had lost
    since (R4); a replica of two elections earlier brought back its records (R5)."""
    outcome = simulate(seed, Options(pace=0.3, unclean=True))
    assert outcome.ok, str(outcome.violation)
    assert outcome.seen["unclean_elections"] > 0


@pytest.mark.parametrize(
    "seed",
    [
        2520,  # a bug, T7: an UpdateMetadata that came late, over a former connection, was taken
        125,  # T7: a coordinator knew only of records that its whole ISR had lost with the power
        4226,  # R5: a leader's HW rose in the very step in which its disk was found to be full
        1591,  # C2: a leader refused a producer's first batch, and took the second (the ISR grew)
    ],
)
def test_a_seed_with_groups_and_transactions_is_clean(seed: int) -> None:
    """Broken at ea7da3b; all but the first were false alarms."""
    outcome = simulate(seed, Options(pace=0.1, transactions=True, groups=True))
    assert outcome.ok, str(outcome.violation)


def test_a_broken_disk_shows_no_checkpoint() -> None:
    """A false alarm (R11): a broker was killed before it met the error of its disk, and started
    again while nobody could read what it had written there."""
    outcome = simulate(82, Options(pace=0.3, groups=True, transactions=True, joints=True))
    assert outcome.ok, str(outcome.violation)


def test_a_broker_that_stands_still_writes_no_checkpoint() -> None:
    """A false alarm (R11): it was killed in the instant in which the machine went on."""
    outcome = simulate(231, Options(pace=0.3, groups=True, static_members=True, stalls=True))
    assert outcome.ok, str(outcome.violation)


def test_two_partitions_whose_transactions_hang_as_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 5 of November 2026, a false alarm (L1): after a power loss no broker knew of two open
    transactions, and waiting for the one was not waiting for the other: it was never asked for its
    offsets."""
    asked: Counter[TopicPartition] = Counter()

    async def end_offset(tp: TopicPartition, isolation: int) -> int:
        asked[tp] += 1
        return 5 if isolation else 9

    async def read(tp: TopicPartition, at: int) -> tuple[list[Any], int, int]:
        return [], 5, 5

    async def pause(least_s: float, _: float) -> None:
        await trio.sleep(least_s)

    async def nothing(*_: object) -> None: ...

    client: Any = SimpleNamespace(end_offset=end_offset, read=read, pause=pause)
    monkeypatch.setattr(Transactions, "may_hang", lambda *_: True)
    monkeypatch.setattr(Transactions, "_offset", nothing)

    async def main(kernel: Kernel) -> None:
        broken: list[tuple[str, str]] = []
        rules: Any = SimpleNamespace(broken=lambda *found: broken.append(found))
        made = Transactions(rules, Counter(), Counter())
        await made.judge(client)
        assert broken == []
        assert made.count["txn hanging, expected"] == 2

    run_simulation(0, main)
    assert len(asked) == 2
    assert min(asked.values()) > 10


def test_a_tail_that_was_cut_off_comes_back_with_the_power() -> None:
    """A false alarm (R6): the last member of an ISR lost power, and led with records that it had
    cut off before, in place of those that it had lost."""
    outcome = simulate(66, Options(pace=0.3, power_loss=True, log_dirs=True, retained=True))
    assert outcome.ok, str(outcome.violation)
    assert outcome.expected_losses


@pytest.mark.parametrize("seed", range(4))  # which of the two begins first
def test_a_life_that_ends_as_it_starts_leaves_the_next_one_alone(seed: int) -> None:
    """A false alarm (L2): its broker was taken for the next life's, whose steps nobody watched.
    And seed 2029 of --stalls --log-dirs: the former life's broker was asked to move a replica."""

    async def course(stage: Stage) -> None:
        await stage.start(1, 2)
        node = stage.cluster.nodes[2]
        for _ in range(2):
            stage.cluster.kill(2)
            stage.cluster.start(2)
            assert node.services is None, "they are the former life's"
        await stage.whole()
        await stage.until(lambda: 2 in stage.isr(), "it is in the ISR")
        assert node.broker is not None
        assert node.broker.world is node.world
        replica = stage.rules.replica(stage.rules.partitions[TP], 2)
        assert replica.view is not None, "the rules do not watch it"

    shape = Shape(brokers=2, min_isr=1, lag_ms=10_000)
    found = play(Scenario("short life", "", shape, course), seed)
    assert found.ok, found


def test_a_former_leader_wakes_with_what_the_next_one_lost() -> None:
    """A false alarm (R4): the next leader had lost power, and its tail, as expected; the former one
    was taken for a member that had lost its own."""
    outcome = simulate(1034, Options(pace=0.3, stalls=True, static_members=True))
    assert outcome.ok, str(outcome.violation)
    assert outcome.expected_losses


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        # a replaced leader raised its HW after the unclean election, and told a reader
        (9065, Options(pace=0.3, power_loss=True, unclean=True, stalls=True, trimmed=True)),
        # the largest timestamp was that of a deleted record, whose segment was there still
        (9094, Options(pace=0.3, compacted=True, retained=True, cold_reads=True)),
    ],
)
def test_what_answers_rightly_tell(seed: int, options: Options) -> None:
    """False alarms of R3."""
    outcome = simulate(seed, options)
    assert outcome.ok, str(outcome.violation)
