"""The verdict on a user's application: its contract over the topics, and the reason in words.

Only the contract accuses.  What the strikes and the witnesses saw lets the headline name the
mistake, and shows which of the promises were tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from highwater.base.wall_clock import wall_ms
from highwater.chaos.aimed.app_stage import AppStage
from highwater.chaos.aimed.promises import accounts, demanded, unexamined
from highwater.chaos.aimed.stories import (
    DISORDERED,
    LOST,
    Story,
    plainest_loss,
    shared_ids,
    story_of,
    story_of_order,
)
from highwater.chaos.aimed.windows import AHEAD, Windows
from highwater.chaos.app_causes import NotThere, why_not_there, why_repeated
from highwater.chaos.app_options import AppOptions
from highwater.chaos.app_processes import AppCluster
from highwater.chaos.app_traffic import Feeder
from highwater.chaos.progress import Progress
from highwater.chaos.witnesses.deaths import DeathWitness
from highwater.client_calls import SOON_S, ClientHangs, within
from highwater.cluster.run_folder import RunFolder
from highwater.verdict import report
from highwater.verdict.contracts import duck_engine
from highwater.verdict.contracts.contract_model import Contract
from highwater.verdict.contracts.fields import Record, extract
from highwater.verdict.contracts.judge import Judgement, judge
from highwater.verdict.contracts.reader import Reader
from highwater.verdict.decision import ZOOKEEPERS
from highwater.verdict.headline import MENDING, counted
from highwater.verdict.history import read_lines

_ID = re.compile(r"\bid (\S+?)[,)]")
"""Finds the id in a violation's detail."""


@dataclass(slots=True)
class AppVerdict:
    options: AppOptions
    folder: RunFolder
    contract: Contract
    progress: Progress
    windows: Windows
    problems: list[str] = field(default_factory=list)
    """Reasons why the run is invalid, apart from the contract."""
    missing: list[str] = field(default_factory=list)
    """Reasons why the run proves nothing."""
    zookeeper: str = ""
    """The kind of ZooKeeper that the brokers had; empty: none."""
    stage: AppStage | None = None
    began: float = 0.0
    """When the screen's clock began, by trio's."""
    deaths: DeathWitness = field(default_factory=lambda: DeathWitness(lambda number: []))
    _outputs: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition of the output -> how many records it has, and the offset after the last."""

    def check(
        self, bootstrap: str, feeder: Feeder, apps: AppCluster, left: Sequence[str]
    ) -> Judgement:
        self.progress.phase("checking")
        reader = Reader(self.contract, bootstrap, {}, self.progress.say_from_thread)
        read_ms = wall_ms()
        seen: set[str] = set()
        records = self._noting(reader.records(), seen)
        found = duck_engine.check(self.contract, records, read_ms)
        if lost := sorted(feeder.acknowledged - seen):
            self.problems.append(
                f"the cluster lost {len(lost)} acknowledged records of {self.options.input}, "
                f"the first with id {lost[0]}"
            )
        told = [f"{feeder.sent:,} inputs sent, {len(feeder.acknowledged):,} acknowledged"]
        if self.zookeeper in ZOOKEEPERS:
            told.append(f"the brokers' ZooKeeper was {ZOOKEEPERS[self.zookeeper]}")
        judgement = judge(self.contract, found, [*told, *apps.ends(), *left, *reader.notes])
        shared = shared_ids(self.stage.transactional_ids() if self.stage else {})
        if judgement.verdict == "invalid":
            rule, first, many = next(
                (i, e, o.violations) for i, o in judgement.checks.items() if o.status == "violated"
                for e in found["checks"][i]["examples"] if e["kind"] == "violation"
            )  # fmt: skip
            if shared:
                judgement.headline += shared
            elif (tale := self._story(rule, first)) is not None:
                judgement.headline = (tale.subject or judgement.headline) + tale.clause
                judgement.notes[:0] = tale.lines
            else:
                judgement.headline += self._why(bootstrap, apps, rule, first, many)
        self._account(judgement)
        judgement.notes[:0] = [*self.problems, *(f"void: {line}" for line in self.missing)]
        if self.problems:
            judgement.verdict, judgement.headline = "invalid", self.problems[0] + shared
        elif self.missing and judgement.verdict == "valid":
            judgement.verdict = "void"
            judgement.headline = f"this run proves nothing: {self.missing[0]}"
        elif judgement.verdict == "valid":
            judgement.headline = self._what_held(len(feeder.acknowledged))
        text = json.dumps(asdict(judgement), indent=1) + "\n"
        self.folder.verdict.write_text(text, encoding="utf-8")
        report.write(self.folder.path)
        return judgement

    def _account(self, judgement: Judgement) -> None:
        """Notes what was tried for each promise.  In a schedule made from a seed, a promise that no
        probe has tried makes the run prove nothing."""
        probes = [] if self.stage is None else self.stage.probes
        options = self.options
        promises = demanded(exactly_once=options.exactly_once, ordered=options.ordered)
        judgement.notes += accounts(probes, promises)
        if self.options.schedule is None:
            self.missing += [f"{p}: not examined" for p in unexamined(probes, promises)]

    def _what_held(self, acknowledged: int) -> str:
        options = self.options
        faults = sum(f["name"] not in MENDING for f in read_lines(self.folder.faults))
        once = "exactly once" if options.exactly_once else "at least once"
        return (
            f"{counted(acknowledged, 'input')} acknowledged, {counted(faults, 'fault')}, and each "
            f"input is in {options.output} {once}{', in order' * options.ordered}, "
            f"within {options.within_s:g} s"
        )

    def _noting(self, records: Iterator[Record], seen: set[str]) -> Iterator[Record]:
        source = {"id": self.contract.topics[self.options.input].sources["id"]}
        for record in records:
            if record.topic == self.options.input:
                seen.add(str(extract(source, record)[1]))
            else:
                count, _ = self._outputs.get(record.partition, (0, 0))
                self._outputs[record.partition] = count + 1, record.offset + 1
            yield record

    def _story(self, rule: str, example: Mapping[str, Any]) -> Story | None:
        """The strike that explains the first lost or repeated input; None if none does."""
        if self.stage is None:
            return None
        options, began, probes = self.options, self.began, self.stage.probes
        wires = [aim.wire for aim in self.stage.aims.values()]
        if rule == DISORDERED:
            return story_of_order(probes, {of for wire in wires for of in wire.idempotent}, began)
        found = _ID.search(str(example["detail"]))
        id_ = found.group(1) if found else ""
        if rule == LOST and len(acks := self.stage.acks()) > 0 and acks <= {0, 1}:
            return None  # a loss by acks=1 looks like one by a commit that came too early
        if rule == LOST:
            id_ = plainest_loss(probes, partial(self.windows.still, AHEAD)) or id_
        place = self.windows.place(id_)
        if place is None:
            return None
        group = min({name for wire in wires for name in wire.groups}, default="")
        partition = f"{options.input}-{place[0]}"
        tale = story_of(probes, rule, id_, (partition, options.output, f"group {group}"), began)
        if tale is None or rule != LOST:
            return tale
        missing = f"record {place[1]} of {partition} is not in {options.output} (id {id_})"
        return replace(tale, subject=missing)

    def _markers(self) -> bool:
        """Whether some offsets of the output have no record, as those of transactions' markers."""
        return any(count < end for count, end in self._outputs.values())

    def _why(self, bootstrap: str, apps: AppCluster, rule: str, lost: Any, many: int) -> str:
        """A clause on why an output is missing or repeated, by the logs and the group's offsets."""
        if rule == "K8":
            wires = [aim.wire for aim in self.stage.aims.values()] if self.stage else []
            return why_repeated(
                self.options.output, self._markers(), sum(wire.commits_beside for wire in wires)
            )
        if rule != "K7":
            return ""
        output = self.options.output
        moved = sum(
            line["what"] == "leader" and line["topic"] == output and line["leader_epoch"] > 0
            for line in read_lines(self.folder.witness)
        )
        killed = {f["target"] for f in read_lines(self.folder.faults) if f["name"] == "kill"}
        return why_not_there(
            NotThere(
                output,
                self.options.group,
                many,
                lost["offset"],
                _committed(bootstrap, self.options.group, lost["topic"], lost["partition"]),
                sum(d.lost for d in self.deaths.deaths if d.tp.topic == output),
                moved,
                any(copy.ends or copy.name in killed for copy in apps.copies.values()),
                self.options.within_s,
                frozenset() if self.stage is None else self.stage.acks(),
            )
        )


def _committed(bootstrap: str, group: str, topic: str, partition: int) -> int | None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    phase = f"asking for the offsets of group {group}"
    try:
        wanted = [ConsumerGroupTopicPartitions(group)]
        asked = within(phase, SOON_S, admin.list_consumer_group_offsets, wanted)
        for place in within(phase, SOON_S, asked[group].result, 15).topic_partitions or ():
            if (place.topic, place.partition) == (topic, partition):
                return int(place.offset)
    except (KafkaException, TimeoutError, ClientHangs):
        pass  # only a clause of the report needs it
    return None
