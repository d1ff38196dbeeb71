"""Replicas move between log directories, and throttles come and go, under load, kills and leader
swaps: the rules watch every step, and acknowledged records are there at the end.

The disk's view of the rules follows a replica from one directory to the other: a batch that was
there before a move and is not there after it would be found in the step that lost it.  And one of
two directories fails: the broker goes on with the other.
"""

from __future__ import annotations

import errno
from collections import Counter
from functools import partial

import pytest
import trio

from highwater.base.event_loop import monotonic_ms
from highwater.broker.replica.throttles import FOLLOWER_RATE, LEADER_RATE
from highwater.kafka.errors import ApiError
from highwater.kafka.types import TopicPartition
from highwater.simulation.cluster import DATA, SPARE, Shape, SimCluster
from highwater.simulation.faults.directory_faults import FAIL, MOVE
from highwater.simulation.options import Options
from highwater.simulation.seed_run import simulate
from highwater.simulation.seeds import replay_command
from highwater.world.sim import Kernel, run_simulation
from highwater.world.sim.disk import SimDisk
from tests.simulation.test_disk_faults import TPS, Scenario, client, heal, whole

SECONDS = 25


class Moves(Scenario):
    """Loads all the time; every few tenths of a second something is moved, throttled or killed."""

    def __init__(self, *, flush: bool) -> None:
        super().__init__(lambda disk: None)
        self.flush = flush
        self.moved = self.kills = self.held = 0
        self.folders: dict[tuple[int, TopicPartition], str] = {}

    async def main(self, kernel: Kernel) -> None:
        shape = Shape(more_log_dirs=(SPARE,), flush_every_batch=self.flush)
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, shape, nursery)
            await self.run(cluster)
            assert cluster.rules.violation is None, str(cluster.rules.violation)
            nursery.cancel_scope.cancel()

    async def run(self, cluster: SimCluster) -> None:
        for broker_id in cluster.nodes:
            cluster.start(broker_id)
        await whole(cluster)
        await client(cluster, "admin").create_topic("safe", len(TPS), 3)
        await whole(cluster)
        async with trio.open_nursery() as load:
            for tp in TPS:
                producer = client(cluster, f"producer-{tp.partition}")
                load.start_soon(producer.run, partial(self.produce, producer, tp))
            load.start_soon(self.kill, cluster)
            await self.move(cluster)
            load.cancel_scope.cancel()
        for broker_id in cluster.nodes:
            cluster.start(broker_id)
        self.throttle(cluster, 0)
        await whole(cluster)
        for tp in TPS:
            await self.check(client(cluster, f"reader-{tp.partition}"), tp)

    async def move(self, cluster: SimCluster) -> None:
        random, end = cluster.kernel.random("moves"), trio.current_time() + SECONDS
        while trio.current_time() < end:
            await trio.sleep(random.uniform(0.1, 0.5))
            self.throttle(cluster, random.choice((0, 0, 2000)))
            services = cluster.nodes[random.choice(list(cluster.nodes))].services
            if services is None:
                continue
            tp, folder = random.choice(TPS), random.choice((DATA, SPARE))
            try:
                services.replicas.moves.alter(tp, folder)
            except ApiError:
                continue  # it has just been started, and has not heard of its replicas
            self.count(cluster)

    def count(self, cluster: SimCluster) -> None:
        """Counts the replicas that have moved since the last look."""
        for broker_id, node in cluster.nodes.items():
            for tp, log in node.services.logs.logs.items() if node.services else ():
                if tp in TPS:
                    folder = log.dir.rpartition("/")[0]
                    self.moved += self.folders.get((broker_id, tp), folder) != folder
                    self.folders[broker_id, tp] = folder

    def throttle(self, cluster: SimCluster, rate: int) -> None:
        """Sets the throttle; 0 for none."""
        for broker_id, node in cluster.nodes.items():
            if node.services is not None:
                throttles = node.services.replicas.throttles
                now_ms = monotonic_ms()
                self.held += throttles.leader.exceeded(now_ms)
                for quota in (throttles.leader, throttles.follower):
                    quota.mark("safe", "*" if rate else "", broker_id)
                throttles.bound({LEADER_RATE: rate, FOLLOWER_RATE: rate} if rate else {})

    async def kill(self, cluster: SimCluster) -> None:
        random = cluster.kernel.random("kills")
        while True:
            await trio.sleep(random.uniform(2, 5))
            number = random.choice(list(cluster.nodes))
            cluster.kill(number)
            self.kills += 1
            await trio.sleep(random.uniform(0.1, 2))
            cluster.start(number)
            await self.back_in_isr(cluster)

    async def back_in_isr(self, cluster: SimCluster) -> None:
        with trio.move_on_after(10):
            while cluster.whole() is not None:
                await trio.sleep(0.1)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_moves_and_throttles_lose_nothing(seed: int, flush: bool) -> None:
    scenario = Moves(flush=flush)
    run_simulation(seed, scenario.main)
    assert scenario.moved >= 5
    assert scenario.kills >= 2
    assert scenario.held, "no throttle was ever reached"
    assert len(scenario.acked) > 300


class OneFails(Scenario):
    """One of two directories of a broker fails for ever: its partitions are led elsewhere, those in
    the other directory stay; a restart with a sound disk brings it back."""

    async def main(self, kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, Shape(more_log_dirs=(SPARE,)), nursery)
            await self.run(cluster)
            assert cluster.rules.violation is None, str(cluster.rules.violation)
            self.deaths = cluster.deaths
            nursery.cancel_scope.cancel()

    async def run(self, cluster: SimCluster) -> None:
        for broker_id in cluster.nodes:
            cluster.start(broker_id)
        await whole(cluster)
        await client(cluster, "admin").create_topic("safe", len(TPS), 3)
        await whole(cluster)
        node = cluster.nodes[2]
        async with trio.open_nursery() as load:
            for tp in TPS:
                producer = client(cluster, f"producer-{tp.partition}")
                load.start_soon(producer.run, partial(self.produce, producer, tp))
            await trio.sleep(3)
            services = node.services
            assert services is not None
            there = [tp for tp in TPS if services.logs.logs[tp].dir.startswith(SPARE)]
            assert 0 < len(there) < len(TPS)
            self.break_disk(node.host.disk)
            with trio.fail_after(20):
                while any(2 in self.isr(cluster, tp) for tp in there):
                    await trio.sleep(0.1)
            before = dict.fromkeys(TPS, 0) | self.acked_by_partition()
            await trio.sleep(5)
            after = self.acked_by_partition()
            assert all(after[tp] > before[tp] + 20 for tp in TPS), "somewhere nothing goes on"
            assert node.running, "it goes on with the other directory"
            assert all(2 in self.isr(cluster, tp) for tp in TPS if tp not in there)
            assert services.logs.offline_dirs == {SPARE}
            heal(node.host.disk)
            cluster.kill(2)
            await trio.sleep(1)
            cluster.start(2)
            await trio.sleep(5)
            load.cancel_scope.cancel()
        await whole(cluster)
        for tp in TPS:
            await self.check(client(cluster, f"reader-{tp.partition}"), tp)

    def isr(self, cluster: SimCluster, tp: TopicPartition) -> tuple[int, ...]:
        state = cluster.rules.partitions[tp].state
        return tuple(state.isr) if state is not None else ()

    def acked_by_partition(self) -> dict[TopicPartition, int]:
        return dict(Counter(tp for tp, _ in self.acked))


def fail_spare(disk: SimDisk) -> None:
    disk.broken[SPARE] = errno.EIO


@pytest.mark.parametrize("seed", range(2))
def test_a_directory_that_fails_takes_its_partitions_and_no_others(seed: int) -> None:
    scenario = OneFails(fail_spare)
    run_simulation(seed, scenario.main)
    assert scenario.deaths == []


def test_seeds_meet_directories_that_fail_and_replicas_that_move() -> None:
    outcome = simulate(0, Options(seconds=15, pace=0.15, log_dirs=True))
    assert outcome.ok, outcome.violation
    assert outcome.faults[FAIL] >= 1, outcome.faults
    assert outcome.faults[MOVE] >= 5, outcome.faults
    assert "--log-dirs" in replay_command(0, Options(log_dirs=True))


@pytest.mark.parametrize("seed", [1010, 1104, 1150, 1231])
def test_seeds_that_found_bugs(seed: int) -> None:
    """A moved log that forgot its producers' batches; a partition in two directories; a move that
    was cut off by a failing disk; a topic that was deleted during a flush."""
    options = Options(pace=0.2, admin=True, disk_errors=True, log_dirs=True)
    outcome = simulate(seed, options)
    assert outcome.ok, outcome.violation
