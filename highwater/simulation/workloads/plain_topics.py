"""The part that every run has: a topic that loses nothing, and one that may (acks=1)."""

from __future__ import annotations

from typing import Self

from highwater.kafka.types import TopicPartition
from highwater.simulation.rules import sim_checks
from highwater.simulation.workloads.part import Part, Shared, Topic, Works
from highwater.simulation.workloads.pipelined import Pipelined
from highwater.simulation.workloads.plain_client import SimClient
from highwater.simulation.workloads.prober import Prober
from highwater.simulation.workloads.workload import Workload

SAFE, LOSSY = "safe", "acks1"
UNCLEAN = {"unclean.leader.election.enable": "true"}


class PlainTopics(Part):
    """Producers and consumers of all kinds, without transactions and groups."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(*shared.told)
        self._cluster, self._lines = shared.cluster, shared.history.lines
        self._workload = Workload(self.rules, shared.history, expect_loss=frozenset({LOSSY}))
        partitions = shared.cluster.kernel.random("topics").randint(1, 2)
        config = UNCLEAN if LOSSY in self.rules.unclean else None
        self.topics = (Topic(SAFE, partitions, aimed=partitions), Topic(LOSSY, config=config))
        *self._safe, self._lossy = self._all = self.targets()

    @classmethod
    def of(cls, shared: Shared) -> Self:
        return cls(shared)

    def clients(self) -> Works:
        work, safe, pace, life = self._workload, self._safe, self.pace, self._leader_life
        produce, consume, lossy = work.produce, work.consume, [self._lossy]
        return {
            "exact": lambda c: produce(c, safe, idempotent=True, rate=8.0 * pace),
            "bursts": lambda c: Pipelined(work, c, life).run(safe, rate=6.0 * pace),
            "plain": lambda c: produce(c, safe, rate=12.0 * pace),
            "acks1": lambda c: produce(c, lossy, acks=1, rate=15.0 * pace),
            "acks0": lambda c: produce(c, lossy, acks=0, rate=2.0 * pace),
            "consumer": lambda c: consume(c, safe, pace),
            "consumer-2": lambda c: consume(c, self._all, pace),
            "prober": lambda c: Prober(work, c).run(safe),
        }

    def _leader_life(self, tp: TopicPartition) -> tuple[int, int, int]:
        truth = self.rules.partitions.get(tp)
        state = truth.state if truth else None
        node = self._cluster.nodes.get(state.leader) if state else None
        if state is None or node is None or node.world is None:
            return -1, -1, -1
        return state.leader, node.world.process.life, state.leader_epoch

    async def look(self, shared: Shared) -> None:
        await self._workload.read_all(shared.client(SimClient, "reader"), self._all)

    def sum_up(self) -> None:
        self._workload.judge()

    def judge_by_sql(self) -> None:
        partitions = self.rules.partitions
        given_up = {tp.topic for tp, truth in partitions.items() if truth.given_up}
        topics = [sim_checks.Topic(name, name == LOSSY, name in given_up) for name in (SAFE, LOSSY)]
        lines = [line for line in self._lines if line["topic"] in (SAFE, LOSSY)]
        try:
            findings = sim_checks.judge(lines, topics, self.rules.witnessed)
        except ValueError as nothing:
            if not given_up:  # no rule binds where loss is expected
                self.rules.broken("L4", str(nothing))
            return
        for check, found, example in findings:
            self.rules.broken(check, f"{found} times by the history, for instance {example}")
