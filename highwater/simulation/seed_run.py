"""One seed: a cluster, a workload, faults, the rules; from start to verdict.

    start -> topics -> workload and faults -> heal -> whole again -> final read -> judge

The seed decides everything, so a seed is a test case, and the command that replays it is all that a
report of a broken rule needs.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import trio

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage
from highwater.simulation.cluster import SimCluster, shape_of
from highwater.simulation.coverage.taps import Collector, listening
from highwater.simulation.faults.joint_writer import Writers
from highwater.simulation.faults.joints import last_joints
from highwater.simulation.faults.random_faults import Faults
from highwater.simulation.faults.variations import plan
from highwater.simulation.last_events import TraceHandler
from highwater.simulation.options import Options
from highwater.simulation.part_list import LOOKING, MAKING, STARTING, in_order
from highwater.simulation.rules.allowed_losses import DECISIONS, GROUPS
from highwater.simulation.rules.cluster_rules import Violation
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.self_test import blind_spot
from highwater.simulation.sim_history import History
from highwater.simulation.workloads.part import Part, Shared
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.simulation.workloads.transactional.transaction_workload import Transactions
from highwater.simulation.workloads.transactional.transactions_client import TxnClient
from highwater.world.sim import Kernel, SimulationStuck, run_simulation

START_S = 60.0
CALM_SHARE, CALM_S = 1 / 3, 5.0
"""The share of the seeds in which a run goes on when all is well again, and for how long."""
WHOLE_S = 120.0
READ_S, KNOWN_S = 120.0, 10.0
LONGEST_S = 3600.0
"""The limit for everything after the faults; the steps above take a few minutes at the most."""


def _first(group: BaseExceptionGroup[BadMessage]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def simulate(seed: int, options: Options | None = None) -> Outcome:
    """Runs one seed; returns its outcome."""
    started = time.process_time()
    options = options or Options()
    run = _Run(seed, options)
    with listening(run.collector) if run.collector is not None else nullcontext():
        try:
            run_simulation(seed, run.main, longest_s=options.seconds + LONGEST_S)
        except SimulationStuck as stuck:
            run.stuck(str(stuck))
        if run.collector is not None:
            run.outcome.reached = run.collector.reached()
            run.outcome.moments = run.collector.moments
    run.outcome.real_seconds = time.process_time() - started
    return run.outcome


class _Run:
    def __init__(self, seed: int, options: Options) -> None:
        self.outcome = Outcome(seed, vary=options.vary)
        self._options = options
        self._cluster: SimCluster | None = None
        self._history = History()
        self._faults: Faults | None = None
        self._parts: list[Part] = []
        self.collector = Collector() if options.coverage else None

    def stuck(self, why: str) -> None:
        cluster = self._cluster
        now = cluster.kernel.timeline.now if cluster else 0.0
        self.outcome.violation = self.outcome.violation or Violation("L1", why, now)
        if cluster is not None:
            self._finish(cluster)

    async def main(self, kernel: Kernel) -> None:
        shape = shape_of(kernel)
        for part in self._options.parts:
            shape = replace(shape, **part.shape(kernel))
        handler: TraceHandler | None = None
        try:
            async with trio.open_nursery() as nursery:
                cluster = self._cluster = SimCluster(kernel, shape, nursery)

                def end() -> None:
                    kernel.run_queue.thaw_all()
                    nursery.cancel_scope.cancel()

                cluster.rules.on_violation = end
                if self.collector is not None:
                    cluster.rules.happened = self.collector.happened
                self._history.now = lambda: kernel.timeline.now
                self._shared = Shared(cluster, self._history, self._options.pace)
                parts = [part.of(self._shared) for part in self._options.parts]
                self._parts = in_order(parts, STARTING)
                cluster.trace.everything = self._options.trace
                handler = TraceHandler(cluster.trace, cluster.mistaken)
                try:
                    await self._scenario(cluster, nursery)
                except* BadMessage as bad:
                    cluster.rules.broken("R12", f"a broker's answer cannot be read: {_first(bad)}")
                finally:
                    self._finish(cluster)
                end()
        finally:
            if handler is not None:
                handler.detach()
                self.outcome.seen.update(handler.unused)

    def _finish(self, cluster: SimCluster) -> None:
        outcome, rules = self.outcome, cluster.rules
        outcome.violation = outcome.violation or rules.violation
        outcome.digest = cluster.kernel.digest()
        outcome.events = cluster.kernel.events
        outcome.virtual_seconds = cluster.kernel.timeline.now
        outcome.seen = rules.seen
        outcome.seen.update({f"waits: {k}": n for k, n in rules.lateness.examined.items()})
        outcome.longest.update(rules.lateness.longest)
        outcome.checks = rules.checks
        outcome.expected_losses = rules.expected_losses
        outcome.operations = self._history.count
        for part in self._parts:
            for name, count in part.counted(self._shared).items():
                outcome.operations[name] = count
        outcome.errors = self._history.errors
        outcome.steps = cluster.kernel.steps
        if self._faults is not None:
            outcome.faults, outcome.pairs = self._faults.done, self._faults.pairs
            outcome.skipped = self._faults.skipped
        if outcome.violation is not None:
            outcome.last_events = cluster.trace.last(25)

    # -- the scenario ---------------------------------------------------------------------------

    async def _scenario(self, cluster: SimCluster, nursery: trio.Nursery) -> None:
        for broker_id in cluster.nodes:
            cluster.start(broker_id)
        if not await self._whole(cluster, START_S):
            return
        if not await self._make_topics(cluster) or not await self._whole(cluster, START_S):
            return
        async with trio.open_nursery() as clients:
            for part in self._parts:
                for name, work in part.clients().items():
                    client = self._shared.client(part.client_kind, name)
                    clients.start_soon(client.run, partial(work, client))
            if self._options.faults:
                await self._break_things(cluster)
            else:
                await trio.sleep(self._options.seconds)
            for part in self._parts:
                part.resting = True
            healed = await self._whole(cluster, WHOLE_S)
            if self._faults is not None and self._options.joints:
                for joint in last_joints(cluster.kernel.random):
                    if healed:
                        await self._faults.run([joint])
                        healed = await self._whole(cluster, WHOLE_S)
            if healed and cluster.kernel.random("calm").random() < CALM_SHARE:
                healed = await self._calm(cluster)
            for part in self._parts:
                healed = healed and await part.settle()
            clients.cancel_scope.cancel()
        if not healed or not await self._look(cluster):
            return
        if not await self._whole(cluster, KNOWN_S, rest=True):
            return
        for part in self._parts:
            part.sum_up()
        self._judge_checker(cluster)
        if self._options.sql and cluster.rules.violation is None:
            for part in self._parts:
                part.judge_by_sql()

    async def _calm(self, cluster: SimCluster) -> bool:
        """Goes on while all is well, so that nothing may be late; False if all is never well."""
        cluster.rules.lateness.disturb()
        if not await cluster.rules.lateness.watch(cluster.brokers, WHOLE_S, CALM_S):
            cluster.rules.broken("L4", f"in {WHOLE_S:g} s after the faults all was never well")
            return False
        return True

    async def _look(self, cluster: SimCluster) -> bool:
        """Lets each part take its last look; False if they do not end in time."""
        with trio.move_on_after(READ_S) as scope:
            for part in in_order(self._parts, LOOKING):
                await part.look(self._shared)
        if scope.cancelled_caught:
            cluster.rules.broken("L1", f"the final read did not end within {READ_S:g} s")
        return not scope.cancelled_caught

    def _judge_checker(self, cluster: SimCluster) -> None:
        rules = cluster.rules
        if rules.violation is None and not rules.compared:
            rules.broken("L4", "no batch was ever compared")
        if rules.violation is None and not rules.seen["answers: of one term"]:
            rules.broken("L4", "no answer's offsets were ever compared with what its leader knew")
        if rules.violation is None and (blind := blind_spot(rules)) is not None:
            rules.broken("L4", blind)

    async def _whole(self, cluster: SimCluster, seconds: float, rest: bool = False) -> bool:
        """Waits until the cluster is whole; with `rest`, until each broker knows the ISRs and no
        request waits, too.  False if it takes too long."""
        deadline = trio.current_time() + seconds
        while (missing := cluster.unrest() if rest else cluster.whole()) is not None:
            if trio.current_time() > deadline:
                cluster.rules.broken("L2", f"{seconds:g} s after all is well, {missing}")
                return False
            await trio.sleep(0.1)
        return True

    async def _make_topics(self, cluster: SimCluster) -> bool:
        parts, replicas = in_order(self._parts, MAKING), min(3, cluster.shape.brokers)
        names = dict.fromkeys(part.maker for part in parts)
        makers = {name: self._shared.client(SimClient, name) for name in names}
        deadline = trio.current_time() + START_S
        wanted = [(makers[part.maker], topic) for part in parts for topic in part.topics]
        for maker, (name, partitions, config, _) in wanted:
            while True:
                try:
                    await maker.create_topic(name, partitions, replicas, config)
                    break
                except Failed as failed:
                    if failed.name == "TOPIC_ALREADY_EXISTS":
                        break
                    if trio.current_time() > deadline:
                        cluster.rules.broken("L1", f"topic {name} cannot be created: {failed}")
                        return False
                    await trio.sleep(0.2)
        return True

    def _targets(self) -> list[TopicPartition]:
        """The partitions at which faults may be aimed."""
        targets = [tp for part in in_order(self._parts, MAKING) for tp in part.targets()]
        coordinated = {part.coordinated for part in self._parts}
        if DECISIONS in coordinated:
            targets.append(TopicPartition(DECISIONS, 0))
        if GROUPS in coordinated:
            # half of the faults aimed at a leader hit a group's coordinator
            targets += [TopicPartition(GROUPS, 0)] * len(targets)
        return targets

    async def _break_things(self, cluster: SimCluster) -> None:
        options = self._options
        random = cluster.kernel.random("faults")
        admin = self._shared.client(SimClient, "admin")
        client = partial(self._shared.client, TxnClient)
        transactions = (part for part in self._parts if isinstance(part, Transactions))
        writers = next((Writers(cluster, part, client) for part in transactions), None)
        self._faults = Faults(cluster, admin, self._targets(), random, writers)
        if self.collector is not None:
            self.collector.faults = self._faults.under_way
            began = trio.current_time()
            self.collector.clock = lambda: trio.current_time() - began
        planned = self.outcome.schedule = plan(cluster.kernel.seed, options, random)
        for fault in planned:
            cluster.trace.add("faults", f"planned: {fault}")
        end = trio.current_time() + options.seconds
        async with trio.open_nursery() as meanwhile:
            meanwhile.start_soon(self._faults.late_requests)
            await self._faults.run(planned)
            await trio.sleep_until(end)
            meanwhile.cancel_scope.cancel()
        self._faults.heal()
        for node in cluster.nodes.values():
            cluster.start(node.id)
