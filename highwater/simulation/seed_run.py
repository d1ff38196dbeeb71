"""One seed: a cluster, a workload, faults, the rules; from start to verdict.

    start -> topics -> workload and faults -> heal -> whole again -> final read -> judge

The seed decides everything, so a seed is a test case, and the command that replays it is all that a
report of a broken rule needs.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import trio

from highwater.kafka.topic_names import INTERNAL_TOPICS
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage
from highwater.simulation.cluster import PORT, SimCluster, shape_of
from highwater.simulation.coverage.taps import Collector, listening
from highwater.simulation.faults.directory_faults import SPARE
from highwater.simulation.faults.joint_writer import Writers
from highwater.simulation.faults.random_faults import Faults
from highwater.simulation.faults.variations import plan
from highwater.simulation.last_events import TraceHandler
from highwater.simulation.options import Options
from highwater.simulation.rules import sim_checks, txn_indexes
from highwater.simulation.rules.allowed_losses import DECISIONS, GROUPS
from highwater.simulation.rules.answers import Answers
from highwater.simulation.rules.cluster_rules import Violation
from highwater.simulation.seed_outcome import Outcome
from highwater.simulation.self_test import blind_spot
from highwater.simulation.sim_history import History
from highwater.simulation.workloads import last_transactions
from highwater.simulation.workloads.compacted import COMPACTED, CompactedTopic, KeyedClient
from highwater.simulation.workloads.epoch_reader import EpochReader
from highwater.simulation.workloads.exact_keys import NAMES as EXACT
from highwater.simulation.workloads.exact_keys import ExactKeys
from highwater.simulation.workloads.group_workload import MEMBERS, PARTITIONS, GroupClient, Groups
from highwater.simulation.workloads.group_workload import TOPIC as GROUPED
from highwater.simulation.workloads.pipelined import Pipelined
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.simulation.workloads.prober import Prober
from highwater.simulation.workloads.rooms import Rooms
from highwater.simulation.workloads.transaction_workload import IDS, Transactions
from highwater.simulation.workloads.transaction_workload import TPS as TXN_PARTITIONS
from highwater.simulation.workloads.transactions_client import TOPIC, TxnClient
from highwater.simulation.workloads.trimmed import PARTITIONS as TRIMMED_PARTITIONS
from highwater.simulation.workloads.trimmed import TRIMMED, ManyClient, TrimmedTopic
from highwater.simulation.workloads.workload import Workload
from highwater.world.sim import Kernel, SimulationStuck, SimWorld, run_simulation

START_S = 60.0
WHOLE_S = 120.0
READ_S, KNOWN_S = 120.0, 10.0
LONGEST_S = 3600.0
"""After the faults, for all that follows; the steps above take a few minutes at the most."""
SAFE, LOSSY = "safe", "acks1"


def _first(group: BaseExceptionGroup[BadMessage]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


class _Parts(NamedTuple):
    """What the clients of a run know; each part judges its own in the end."""

    workload: Workload
    compacted: CompactedTopic
    transactions: Transactions
    groups: Groups
    trimmed: TrimmedTopic
    epochs: EpochReader


def _plain(tps: list[TopicPartition]) -> list[TopicPartition]:
    """Partitions of the topics without transactions and groups."""
    return [tp for tp in tps if tp.topic not in (TOPIC, GROUPED)]


def simulate(seed: int, options: Options | None = None) -> Outcome:
    """Runs one seed and gives its outcome."""
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
        self._exact: list[ExactKeys] = []
        self._writers: Writers | None = None
        self.collector = Collector() if options.coverage else None

    def stuck(self, why: str) -> None:
        cluster = self._cluster
        now = cluster.kernel.timeline.now if cluster else 0.0
        self.outcome.violation = self.outcome.violation or Violation("L1", why, now)
        if cluster is not None:
            self._finish(cluster)

    async def main(self, kernel: Kernel) -> None:
        shape = shape_of(kernel, self._options.flush)
        if self._options.log_dirs:
            shape = replace(shape, more_log_dirs=(SPARE,))
        if self._options.compacted:
            size = kernel.random("internal segments").choice((None, 2000))
            shape = replace(shape, cleaner_backoff_ms=700, internal_segment_bytes=size)
        if self._options.retained:
            shape = replace(shape, retention_check_ms=1000)
        if self._options.trimmed:
            slots = kernel.random("session slots").choice((1000, 1000, 2, 3))
            shape = replace(shape, session_slots=slots)
        if self._options.cold_reads:
            shape = replace(shape, small_bytes=0)  # what is read at once waits for no disk
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
                if self._options.compacted:
                    cluster.rules.compacted |= {COMPACTED}
                    if shape.internal_segment_bytes is not None:
                        cluster.rules.compacted |= INTERNAL_TOPICS
                if self._options.unclean:
                    cluster.rules.unclean |= {LOSSY}
                if self._options.cold_reads:
                    for node in cluster.nodes.values():
                        node.host.disk.cold = 1 / 3
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
        outcome.checks = rules.checks
        outcome.expected_losses = rules.expected_losses
        outcome.operations = self._history.count
        if self._options.cold_reads:
            loads = sum(node.host.disk.loads for node in cluster.nodes.values())
            outcome.operations["cold reads"] = loads
        if self._options.trimmed:
            brokers = (node.services for node in cluster.nodes.values())
            evicted = sum(one.replicas.sessions.evictions for one in brokers if one is not None)
            outcome.operations["sessions: evicted"] = evicted
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
        rooms = self._rooms = self._make_rooms(cluster)
        tps = await self._make_topics(cluster)
        if not tps or not await self._whole(cluster, START_S):
            return
        self._history.now = lambda: cluster.kernel.timeline.now
        workload = Workload(cluster.rules, self._history, expect_loss=frozenset({LOSSY}))
        compacted = CompactedTopic(cluster.rules)
        told = (cluster.rules, self._history.count, self._history.errors, self._options.pace)
        transactions, groups = Transactions(*told), Groups(*told)
        ample = cluster.shape.session_slots > 1 + cluster.shape.brokers
        trimmed = TrimmedTopic(*told, deleted=cluster.requested.deletions, sessions_for_all=ample)
        epochs = EpochReader(*told)
        if self._options.transactions:
            client = partial(self._txn_client, cluster)
            self._writers = Writers(cluster, transactions, client)
        async with trio.open_nursery() as clients:
            self._start_clients(cluster, workload, clients, tps)
            if self._options.transactions:
                self._start_transactions(cluster, transactions, clients)
            if self._options.groups:
                self._start_group(cluster, groups, clients)
            if self._options.compacted:
                self._start_compacted(cluster, compacted, clients)
            if self._options.trimmed:
                self._start_many(cluster, trimmed, clients)
            if self._options.reads_epochs:
                reader = SimClient(*self._place(cluster, "epochs"))
                clients.start_soon(reader.run, partial(epochs.consume, reader, _plain(tps)))
            rooms.start(clients)
            if self._options.faults:
                await self._break_things(cluster, tps)
            else:
                await trio.sleep(self._options.seconds)
            rooms.rest()
            healed = await self._whole(cluster, WHOLE_S)
            if healed and self._options.trimmed:
                healed = await self._caught_up(cluster, trimmed)
            clients.cancel_scope.cancel()
        if not healed:
            return
        parts = _Parts(workload, compacted, transactions, groups, trimmed, epochs)
        if not await self._read_all(cluster, parts, tps):
            return
        if not await self._whole(cluster, KNOWN_S, rest=True):
            return
        workload.judge()
        self._judge_checker(cluster)
        if self._options.sql and cluster.rules.violation is None:
            self._judge_by_sql(cluster)
            if self._options.transactions:
                transactions.judge_circles()

    async def _read_all(
        self, cluster: SimCluster, parts: _Parts, tps: list[TopicPartition]
    ) -> bool:
        """The last reads, and what each part says of them; False if they do not end."""
        workload, compacted, transactions, groups, trimmed, epochs = parts
        with trio.move_on_after(READ_S) as scope:
            if self._options.transactions:
                await transactions.judge(self._txn_client(cluster, "txn-reader"))
                await last_transactions.judge(self._txn_client(cluster, "last"), cluster.rules)
                compared = txn_indexes.compare(
                    cluster.nodes.values(), cluster.rules, TXN_PARTITIONS
                )
                self._history.count["txn index entries"] += compared
            if self._options.groups:
                await groups.judge(self._group_client(cluster, "group-reader"))
            await workload.read_all(self._client(cluster, "reader"), _plain(tps))
            if self._options.reads_epochs:
                last = SimClient(*self._place(cluster, "last-epochs"))
                await epochs.finish(last, self._history.final)
            if self._options.compacted:
                found = await compacted.read_all(self._keyed_client(cluster, "keyed"))
                compacted.judge(found, cluster)
                for producer in self._exact:
                    producer.judge()
            if self._options.trimmed:
                await trimmed.judge(self._many_client(cluster, "many-reader"))
            await self._rooms.judge()
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

    def _judge_by_sql(self, cluster: SimCluster) -> None:
        partitions = cluster.rules.partitions
        given_up = {tp.topic for tp, truth in partitions.items() if truth.given_up}
        topics = [sim_checks.Topic(name, name == LOSSY, name in given_up) for name in (SAFE, LOSSY)]
        lines = [line for line in self._history.lines if line["topic"] in (SAFE, LOSSY)]
        try:
            findings = sim_checks.judge(lines, topics, cluster.rules.witnessed)
        except ValueError as nothing:
            if not given_up:  # no rule binds where loss is expected
                cluster.rules.broken("L4", str(nothing))
            return
        for check, found, example in findings:
            cluster.rules.broken(check, f"{found} times by the history, for instance {example}")

    async def _whole(self, cluster: SimCluster, seconds: float, rest: bool = False) -> bool:
        """Waits for it; with `rest`, until each broker knows the ISRs, and no request waits."""
        deadline = trio.current_time() + seconds
        while (missing := cluster.unrest() if rest else cluster.whole()) is not None:
            if trio.current_time() > deadline:
                cluster.rules.broken("L2", f"{seconds:g} s after all is well, {missing}")
                return False
            await trio.sleep(0.1)
        return True

    def _client(self, cluster: SimCluster, name: str) -> SimClient:
        return SimClient(*self._place(cluster, name))

    def _keyed_client(self, cluster: SimCluster, name: str) -> KeyedClient:
        return KeyedClient(*self._place(cluster, name))

    def _many_client(self, cluster: SimCluster, name: str) -> ManyClient:
        return ManyClient(*self._place(cluster, name))

    def _txn_client(self, cluster: SimCluster, name: str) -> TxnClient:
        return TxnClient(*self._place(cluster, name))

    def _group_client(self, cluster: SimCluster, name: str) -> GroupClient:
        return GroupClient(*self._place(cluster, name))

    def _start_group(self, cluster: SimCluster, groups: Groups, nursery: trio.Nursery) -> None:
        for number in range(MEMBERS):
            client = self._group_client(cluster, f"member-{number}")
            nursery.start_soon(client.run, partial(groups.member, client))
        stranger = self._group_client(cluster, "stranger")
        nursery.start_soon(stranger.run, partial(groups.stranger, stranger))

    def _start_compacted(
        self, cluster: SimCluster, compacted: CompactedTopic, nursery: trio.Nursery
    ) -> None:
        told = (self._history.count, self._history.errors, self._options.pace)
        plain = self._keyed_client(cluster, "producer-keyed")
        nursery.start_soon(plain.run, partial(compacted.produce, plain))
        for name in EXACT:
            client = self._keyed_client(cluster, name)
            self._exact.append(ExactKeys(compacted, client, *told))
            nursery.start_soon(client.run, self._exact[-1].run)

    def _start_many(
        self, cluster: SimCluster, trimmed: TrimmedTopic, nursery: trio.Nursery
    ) -> None:
        works = {"many": trimmed.produce, "deleter": trimmed.delete, "sessions": trimmed.consume}
        for name, work in works.items():
            client = self._many_client(cluster, name)
            nursery.start_soon(client.run, partial(work, client))

    async def _caught_up(self, cluster: SimCluster, trimmed: TrimmedTopic) -> bool:
        with trio.move_on_after(READ_S) as scope:
            await trimmed.caught_up()
        if scope.cancelled_caught:
            cluster.rules.broken("L1", f"{READ_S:g} s after all is well, sessions lack records")
        return not scope.cancelled_caught

    def _start_transactions(
        self, cluster: SimCluster, transactions: Transactions, nursery: trio.Nursery
    ) -> None:
        for name in IDS:
            client = self._txn_client(cluster, f"producer-{name}")
            nursery.start_soon(client.run, partial(transactions.produce, client, name))
        reader = self._txn_client(cluster, "committed")
        nursery.start_soon(reader.run, partial(transactions.consume, reader))

    def _place(
        self, cluster: SimCluster, name: str
    ) -> tuple[SimWorld, str, list[tuple[str, int]], Answers]:
        host = cluster.simulation.add_host(name)
        world = cluster.simulation.start(host)
        bootstrap = [(node.name, PORT) for node in cluster.nodes.values()]
        return world, name, bootstrap, cluster.rules.answers

    def _make_rooms(self, cluster: SimCluster) -> Rooms:
        history, options = self._history, self._options
        told = (history.count, history.errors, options.pace)
        return Rooms(
            cluster,
            self._place,
            *told,
            retained=options.retained,
            admin=options.admin,
            static_members=options.static_members,
            keyed_transactions=options.compacted and options.transactions,
            mixed_commits=options.groups and options.transactions,
        )

    async def _make_topics(self, cluster: SimCluster) -> list[TopicPartition]:
        admin = self._client(cluster, "creator")
        random = cluster.kernel.random("topics")
        wanted = {SAFE: random.randint(1, 2), LOSSY: 1}
        if self._options.transactions:
            wanted[TOPIC] = 2
        if self._options.groups:
            wanted[GROUPED] = PARTITIONS
        deadline = trio.current_time() + START_S
        replicas = min(3, cluster.shape.brokers)
        calls: dict[str, Callable[[], Awaitable[None]]]
        calls = {name: partial(admin.create_topic, name, n, replicas) for name, n in wanted.items()}
        if self._options.unclean:
            allowed = {"unclean.leader.election.enable": "true"}
            calls[LOSSY] = partial(admin.create_topic, LOSSY, wanted[LOSSY], replicas, allowed)
        if self._options.trimmed:
            calls[TRIMMED] = partial(admin.create_topic, TRIMMED, TRIMMED_PARTITIONS, replicas)
        if self._options.compacted:
            calls[COMPACTED] = partial(self._keyed_client(cluster, "maker").create, replicas)
        calls |= self._rooms.topics(admin, replicas)
        for name, create in calls.items():
            while True:
                try:
                    await create()
                    break
                except Failed as failed:
                    if failed.name == "TOPIC_ALREADY_EXISTS":
                        break
                    if trio.current_time() > deadline:
                        cluster.rules.broken("L1", f"topic {name} cannot be created: {failed}")
                        return []
                    await trio.sleep(0.2)
        return [TopicPartition(n, p) for n, count in wanted.items() for p in range(count)]

    def _start_clients(
        self,
        cluster: SimCluster,
        workload: Workload,
        nursery: trio.Nursery,
        tps: list[TopicPartition],
    ) -> None:
        safe = [tp for tp in tps if tp.topic == SAFE]
        lossy = [tp for tp in tps if tp.topic == LOSSY]

        def start(name: str, work: Callable[[SimClient], Awaitable[None]]) -> None:
            client = self._client(cluster, name)
            nursery.start_soon(client.run, partial(work, client))

        def leader_life(tp: TopicPartition) -> tuple[int, int, int]:
            truth = cluster.rules.partitions.get(tp)
            state = truth.state if truth else None
            node = cluster.nodes.get(state.leader) if state else None
            if state is None or node is None or node.world is None:
                return -1, -1, -1
            return state.leader, node.world.process.life, state.leader_epoch

        produce, consume, pace = workload.produce, workload.consume, self._options.pace
        start("exact", lambda c: produce(c, safe, idempotent=True, rate=8.0 * pace))
        start("bursts", lambda c: Pipelined(workload, c, leader_life).run(safe, rate=6.0 * pace))
        start("plain", lambda c: produce(c, safe, rate=12.0 * pace))
        start("acks1", lambda c: produce(c, lossy, acks=1, rate=15.0 * pace))
        start("acks0", lambda c: produce(c, lossy, acks=0, rate=2.0 * pace))
        start("consumer", lambda c: consume(c, safe, pace))
        start("consumer-2", lambda c: consume(c, [*safe, *lossy], pace))
        start("prober", lambda c: Prober(workload, c).run(safe))

    def _targets_in_rooms(self) -> list[TopicPartition]:
        """Partitions of the parts that have a flag."""
        topics = {TRIMMED: self._options.trimmed, COMPACTED: self._options.compacted}
        found = [TopicPartition(topic, 0) for topic, wanted in topics.items() if wanted]
        decisions = [TopicPartition(DECISIONS, 0)] if self._options.transactions else []
        return found + self._rooms.tps() + decisions

    async def _break_things(self, cluster: SimCluster, tps: list[TopicPartition]) -> None:
        options = self._options
        random = cluster.kernel.random("faults")
        admin = self._client(cluster, "admin")
        targets = [tp for tp in tps if tp.topic != GROUPED] + self._targets_in_rooms()
        if options.groups or options.static_members:
            # half of the faults aimed at a leader hit a group's coordinator
            targets += [TopicPartition(GROUPS, 0)] * len(targets)
        self._faults = Faults(cluster, admin, targets, random, self._writers)
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
