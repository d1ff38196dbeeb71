"""One chaos run, from an empty folder to a verdict.

    start the cluster  ->  create topics, watch ZooKeeper  ->  workload and faults  ->  mend, wait
    until whole ->  stop the workload, read everything back  ->  collect what is on disk  ->  checks
    ->  stop the cluster

Theory of operation.  The cluster is one async context, the workload one process, the faults one
task; the run is their sequence.  Everything that could make the verdict say too much is written
down as a problem: a process that died unasked, a cluster that did not become whole, a final read
that fell short, a fault without a visible effect.
"""

from __future__ import annotations

import datetime
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import trio

from highwater.chaos import secured_clients
from highwater.chaos.faults.engine import Engine
from highwater.chaos.faults.schedule import generate
from highwater.chaos.progress import Progress
from highwater.chaos.versions import versions
from highwater.chaos.watch_process import RULE, WatchProcess
from highwater.chaos.witnesses import disk_reader as disk
from highwater.chaos.witnesses import state_rules as rules
from highwater.chaos.witnesses.deaths import DeathWitness
from highwater.chaos.workloads import confluent, share_members
from highwater.chaos.workloads.group_run import JAVA
from highwater.chaos.workloads.recorder import Spec, Topic
from highwater.chaos.workloads.run_groups import CLASSIC, CONSUMER, RunGroups
from highwater.chaos.workloads.transactional import BANK, COPY_IN, COPY_OUT
from highwater.chaos.workloads.workload_process import Workload
from highwater.child_processes import StartError
from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.scene import Scene
from highwater.cluster.faults.schedule_form import check, check_one
from highwater.cluster.faults.verb_row import Kind
from highwater.cluster.faults.verb_table import IN_CONTAINERS, lacks
from highwater.cluster.faults.witness import Witness
from highwater.cluster.faults.witnesses import witness_of
from highwater.cluster.faults.workload_verbs import ChaosStage
from highwater.cluster.interface import PATIENCE_S, Cluster, ClusterError
from highwater.cluster.processes import apache
from highwater.cluster.processes.process_cluster import process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.programs import Highwater, Program
from highwater.cluster.processes.zookeeper_process import find_java, for_a_proof
from highwater.cluster.run_folder import RunFolder, RunInfo, TopicInfo
from highwater.cluster.run_topics import create_topics, delete_topic
from highwater.cluster.target import Target
from highwater.kafka.errors import ErrorCode
from highwater.verdict.history import LineLog, encode_line

TRANSACTIONS, JAVA_TRANSACTIONS = "transactions", "java-transactions"
GROUPS, CONSUMER_GROUPS, SHARE = "groups", "consumer-groups", "share"
BROKERS = (1, 2, 3)
HEAL_S = 60.0
FINAL_READ_S, READ_A_SECOND = 60.0, 10_000
"""The time for the full read at the end: the seconds, and the acknowledged records by the rate."""


@dataclass(slots=True)
class Options:
    out: Path
    seed: int
    duration_s: float = 40.0
    runtime: str = "process"
    schedule: list[Fault] | None = None
    """None: generated from the seed."""
    keep: bool = False
    """Whether to keep the brokers' data even if the verdict is valid."""
    rate: float = 100.0
    program: Program = field(default_factory=Highwater)
    target: Target | None = None
    """The cluster that is broken instead of `program`."""
    producers: tuple[str, ...] = ("kafka-python", "confluent-kafka", "highwater")
    consumers: tuple[str, ...] = ("kafka-python", "confluent-kafka", "highwater")
    workloads: tuple[str, ...] = ()
    """Workloads in addition to the writers, by the names above: transactions (T3-T5, T7), by
    librdkafka or by the Java client, groups (G2-G4, G6) of either protocol, and a share group
    (S1-S4)."""
    engine: str = "auto"
    watch: bool = False
    """Whether spark/watch.py watches the run, and its first alarm ends the workload."""
    properties: dict[str, str] = field(default_factory=dict)
    again: str = ""
    """The command that repeats the run, for its report."""
    zookeeper: str = ""
    """java, embedded, or addresses; empty: Java's if it can run here, else embedded."""
    secure: bool = False
    """Whether the workload's clients use TLS, log in, and have few rights (`secured_clients`)."""

    @property
    def security(self) -> str:
        return secured_clients.SECURITY if self.secure else "plaintext"

    @property
    def transactions_by(self) -> str:
        """The client of the transactions, if there are any."""
        clients = {TRANSACTIONS: confluent.CLIENT, JAVA_TRANSACTIONS: JAVA}
        return next((c for name, c in clients.items() if name in self.workloads), "")


def choose_runtime(asked: str) -> str:
    """`auto` means processes: they need no engine, and every verb works on them."""
    return "process" if asked == "auto" else asked


def open_cluster(options: Options, folder: RunFolder) -> AbstractAsyncContextManager[Cluster]:
    properties = {"log.segment.bytes": "1048576"}
    if SHARE in options.workloads:
        properties |= share_members.PROPERTIES
    properties |= options.properties
    if options.target is not None:
        return options.target.open(folder.cluster, properties)
    if options.runtime == "compose":
        from highwater.cluster.compose.compose_cluster import ComposeSettings, compose_cluster

        return compose_cluster(ComposeSettings(folder.cluster, properties))
    settings = Settings(
        folder.cluster,
        proxies=True,
        program=options.program,
        quick_end=True,
        security=options.security,
        properties=properties,
        zookeeper=for_a_proof(options.zookeeper),
    )
    return _as_cluster(settings)


def _own_lacks(options: Options) -> Mapping[str, str]:
    """The faults that a cluster without a target cannot have."""
    if options.runtime == "compose":
        return lacks(*IN_CONTAINERS)
    doorless = [Kind.DOORLESS, Kind.FOREIGN] * (options.program.name != "highwater")
    return lacks(*doorless, *[Kind.TLS] * options.secure)


@asynccontextmanager
async def _as_cluster(settings: Settings) -> AsyncIterator[Cluster]:
    async with process_cluster(settings) as cluster:
        yield cluster


class Run:
    def __init__(self, options: Options, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.folder = RunFolder(options.out)
        self.topics = [
            TopicInfo("safe", 3, 3, 2),
            TopicInfo("lossy", 1, 3, 1, expect_loss=True),
        ]
        if options.transactions_by:
            self.topics += [TopicInfo(name, 3, 3, 2) for name in (BANK, COPY_IN, COPY_OUT)]
        target = options.target
        brokers = BROKERS if target is None else target.brokers
        lacking = {} if target is None else dict(target.lacks)
        self.shared = target is not None and target.shared
        self._made_topics = False
        topics = {topic.name: topic.partitions for topic in self.topics}
        controllers = () if target is None else target.controllers
        self.scene = Scene(
            brokers, topics, controllers=controllers, lacks=lacking or _own_lacks(options)
        )
        if options.schedule is not None:
            check(options.schedule, self.scene)
        self.info = RunInfo(
            run=f"r{options.seed}-{int(time.time()) % 1_000_000}",
            seed=options.seed,
            runtime=options.runtime,
            target="" if target is None else str(target),
            lacks=lacking,
            duration_s=options.duration_s,
            security=options.security,
            again=options.again,
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            topics=self.topics,
            versions=versions(),
        )
        self.watch = WatchProcess(self.folder.path, progress) if options.watch else None
        self._java_jars = Path()
        self._has_java = False

    async def execute(self) -> Any:
        """Makes the whole run; returns the verdict (`highwater.verdict.verdict.Verdict`)."""
        self.folder.create()
        self.folder.write_info(self.info)
        if self.info.lacks:
            told = "; ".join(f"{what} ({why})" for what, why in self.info.lacks.items())
            self.progress.say(f"{self.info.target} lacks {told}")
        await trio.to_thread.run_sync(self._prepare_java)
        whom = self.info.target or f"ZooKeeper and three brokers ({self.options.runtime})"
        if self.options.secure:
            whom += f", with clients by {self.options.security.upper()}"
        self.progress.phase(f"starting {whom}")
        began = time.monotonic()
        async with open_cluster(self.options, self.folder) as cluster:
            self.progress.say(
                f"{len(cluster.brokers)} brokers serve after {time.monotonic() - began:.1f} s:"
                f" {cluster.bootstrap}"
            )
            self.info.bootstrap = cluster.direct_bootstrap
            self.info.zookeeper = cluster.zookeeper_kind
            self.info.brokers = cluster.brokers
            try:
                await self._break(cluster)
                verdict = await self._check()
            finally:
                with trio.CancelScope(shield=True):
                    await self._delete_topics(cluster)
            self.progress.phase("stopping the cluster")
        if verdict.verdict == "valid" and not self.options.keep:
            self._forget_data()
        return verdict

    async def _break(self, cluster: Cluster) -> None:
        """Goes from a serving cluster to a folder that can be checked."""
        witness_log, sizes_log = (
            LineLog(self.folder.witness),
            LineLog(self.folder.cluster / "sizes.jsonl"),
        )
        lives_log = LineLog(self.folder.cluster / "processes.jsonl")
        cluster.lives.write_to(lives_log)
        witness = witness_of(cluster, witness_log)
        sizes = disk.SizeWitness({n: cluster.data_dirs(n) for n in cluster.brokers}, sizes_log)
        deaths = DeathWitness(cluster.data_dirs)
        await trio.to_thread.run_sync(witness.start)
        try:
            self.progress.phase("creating topics")
            await self._make_topics(cluster)
            for topic in self.topics:
                await trio.to_thread.run_sync(witness.watch_topic, topic.name)
            if self.watch is not None:
                self.progress.phase("starting the watch")
                names = [topic.name for topic in self.topics]
                await self.watch.start(cluster.direct_bootstrap, names)
            sizes.start()
            await self._workload_and_faults(cluster, witness, deaths)
            if self.watch is not None:
                self.progress.phase("the watch reads the rest")
                self.info.cluster_checks[RULE] = asdict(await self.watch.stop())
            sizes.close()
            deaths.settle(witness.partitions)
            self._collect(cluster)
            self.info.finished = True
        finally:
            if self.watch is not None:
                self.watch.kill()
            with trio.CancelScope(shield=True):  # its thread would outlive an interrupted run
                await trio.to_thread.run_sync(witness.close)
            self._count(cluster, witness, sizes, deaths)
            cluster.lives.write_to(None)
            for log in (witness_log, sizes_log, lives_log):
                log.close()

    async def _make_topics(self, cluster: Cluster) -> None:
        """Makes the run's topics; ClusterError if a cluster that others started has one of them."""
        await create_topics(cluster, self.topics, exists_ok=not self.shared)
        self._made_topics = True
        if self.options.secure:
            self.progress.phase("giving the clients their rights")
            how = (self.folder.cluster, self.options.security)
            names = [topic.name for topic in self.topics]
            await secured_clients.begin(cluster, *how, names, self.info.run)

    async def _delete_topics(self, cluster: Cluster) -> None:
        for topic in self.topics if self.shared and self._made_topics else ():
            try:
                await delete_topic(cluster, topic.name)
            except ClusterError as error:
                self.progress.say(f"left behind: {error}")

    async def _workload_and_faults(
        self, cluster: Cluster, witness: Witness, deaths: DeathWitness
    ) -> None:
        spec = self._spec(cluster)
        workload = Workload(spec, self.folder.path, self.progress.stats)
        way = secured_clients.way_of(cluster, self.folder.cluster, self.options.security)
        groups = RunGroups(
            self.folder.path, way, spec.run, spec.seed, spec.safe.name, self._groups()
        )
        rng = random.Random(self.options.seed)
        stage = ChaosStage(
            cluster, witness, rng, deaths=deaths, workload=workload, topics=self.topics
        )
        stage.clients = lambda: [workload.pid, *groups.pids()]
        faults_log = LineLog(self.folder.faults)
        engine = Engine(stage, faults_log, self.progress.say)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(workload.run)
                nursery.start_soon(_settle_often, stage)
                await workload.wait_for("started", PATIENCE_S)
                with_groups = trio.CancelScope()
                if groups.groups:
                    nursery.start_soon(_within, with_groups, groups.run)
                schedule = self._schedule()
                self.info.loss_arranged = any(f.name == "lose_unreplicated" for f in schedule)
                self.progress.phase("workload runs, faults are injected", self.options.duration_s)
                await self._until_alarm(engine.run, schedule)
                self.progress.phase("healing")
                self.info.planned_faults = engine.planned
                await engine.mend()
                await self._wait_whole(stage)
                self.progress.phase("producers flush, consumers catch up")
                with_groups.cancel()
                self.info.problems += await trio.to_thread.run_sync(groups.stop)
                await workload.order("stop")
                ended = await workload.wait_for("stopped", 300)
                self.info.problems += [f"client {name} did not stop" for name in ended["late"]]
                for name, failure in ended["failed"].items():
                    self.info.problems.append(f"client {name} was ended by {failure}")
                await self._final_read(workload)
                await trio.to_thread.run_sync(groups.add_to, self.folder.history)
                nursery.cancel_scope.cancel()
        finally:
            groups.kill()
            faults_log.close()
            await workload.close()

    async def _until_alarm(
        self, inject: Callable[[list[Fault], float], Awaitable[None]], schedule: list[Fault]
    ) -> None:
        """Carries out the schedule, until the watch's first alarm if there is one."""
        async with trio.open_nursery() as nursery:
            if self.watch is not None:

                async def look(watch: WatchProcess) -> None:
                    await watch.first_alarm()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(look, self.watch)
            await inject(schedule, self.options.duration_s)
            nursery.cancel_scope.cancel()

    async def _wait_whole(self, stage: ChaosStage) -> None:
        problems = await stage.wait_healthy(HEAL_S)
        self.info.healed = not problems
        self.info.problems += [f"{HEAL_S:g} s after healing, {p}" for p in problems]

    async def _final_read(self, workload: Workload) -> None:
        self.progress.phase("reading everything back")
        within_s = FINAL_READ_S + workload.stats.get("acked", 0) / READ_A_SECOND
        await workload.order("final", timeout_s=within_s)
        problems = (await workload.wait_for("final", 2 * within_s + 30))["problems"]
        self.info.final_read = not problems
        self.info.problems += [f"final read: {p}" for p in problems]
        await workload.order("exit")
        await workload.wait_for("closed", PATIENCE_S)

    def _schedule(self) -> list[Fault]:
        if self.options.schedule is not None:
            return self.options.schedule
        partitions = [f"safe-{p}" for p in range(self.topics[0].partitions)]
        options = self.options
        return generate(options.seed, options.duration_s, partitions, self._possible)

    def _possible(self, fault: Fault) -> bool:
        try:
            check_one(fault, self.scene)
        except ScheduleError:
            return False
        return True

    def _groups(self) -> list[tuple[str, str]]:
        """The clients and protocols of the run's consumer groups."""
        kinds: list[tuple[str, str]] = []
        if GROUPS in self.options.workloads:
            kinds += CLASSIC
        if CONSUMER_GROUPS in self.options.workloads:
            kinds += [kind for kind in CONSUMER if kind[0] != JAVA or self._has_java]
        return kinds

    def _prepare_java(self) -> None:
        """Fetches the jars that the workloads need.  Consumer groups can do without them; raises
        StartError where a workload that is Java's alone cannot have them."""
        if self.options.transactions_by == JAVA or SHARE in self.options.workloads:
            find_java()
            self._java_jars = apache.client_jars()
        if CONSUMER_GROUPS in self.options.workloads:
            try:
                if self.options.secure:
                    raise StartError("it has no login here")
                find_java()
                apache.home()
            except StartError as error:
                why = f"the consumer groups are without the Java client: {error}"
                self.progress.say_from_thread(why)
            else:
                self._has_java = True

    def _spec(self, cluster: Cluster) -> Spec:
        safe, lossy = (Topic(t.name, t.partitions, t.expect_loss) for t in self.topics[:2])
        way = secured_clients.way_of(cluster, self.folder.cluster, self.options.security)
        return Spec(
            **asdict(way),
            run=self.info.run,
            seed=self.options.seed,
            history=str(self.folder.history),
            safe=safe,
            lossy=lossy,
            rate=self.options.rate,
            producers=self.options.producers,
            consumers=self.options.consumers,
            transactions=self.options.transactions_by,
            share_group=SHARE in self.options.workloads,
            java_jars=str(self._java_jars),
        )

    def _count(
        self,
        cluster: Cluster,
        witness: Witness,
        sizes: disk.SizeWitness,
        deaths: DeathWitness,
    ) -> None:
        """Writes the witnesses' counts into run.json, even where the run breaks off."""
        links = cluster.links
        not_leader = links.answered(ErrorCode.NOT_LEADER_OR_FOLLOWER) if links is not None else 0
        names = ("leader_changes", "isr_shrinks", "isr_expands", "controller_moves")
        self.info.seen = {
            "not_leader": not_leader,
            **{name: witness.seen[name] for name in names},
            "truncated_bytes": sizes.truncated_bytes,
            "hw_below_leo_at_leader_death": deaths.hw_below_leo,
            "leader_deaths": len(deaths.deaths),
        }
        self._judge(rules.leader_in_isr(witness.history), "R2")
        self._judge(rules.epochs_and_leaders(witness.history), "R7")
        self._judge(rules.controller_epochs(witness.controller_epochs), "R10")
        self.info.problems += cluster.unexpected_ends() + cluster.logged_exceptions()
        self.folder.write_info(self.info)
        lines = b"".join(encode_line(_death_line(d)) for d in deaths.deaths)
        (self.folder.cluster / "deaths.jsonl").write_bytes(lines)

    def _collect(self, cluster: Cluster) -> None:
        """Collects every replica's records and epochs from disk after the final read."""
        self.progress.phase("reading the brokers' segments")
        data = {number: cluster.data_dirs(number) for number in cluster.brokers}
        logs, files = disk.copy_records(data, {t.name for t in self.topics}, self.folder.cluster)
        self._judge(rules.logs_match(logs), "R5")
        self._judge(rules.epoch_files(files), "R8")

    def _judge(self, found: rules.Found, rule: str) -> None:
        self.info.cluster_checks[rule] = asdict(found)

    async def _check(self) -> Any:
        """Runs the checks while the cluster still runs, because Spark reads its topics too."""
        from highwater.verdict import report, runner

        self.progress.phase("checking")
        engine: Any = self.options.engine

        def work() -> Any:
            verdict = runner.run(self.folder.path, engine, self.progress.say_from_thread)
            report.write(self.folder.path)
            return verdict

        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)

    def _forget_data(self) -> None:
        """Deletes the brokers' data of a valid run: its content is in records.jsonl."""
        for folder in self.folder.cluster.iterdir():
            for name in ("data",):
                shutil.rmtree(folder / name, ignore_errors=True)


async def _within(scope: trio.CancelScope, work: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await work()


async def _settle_often(stage: ChaosStage) -> None:
    """Notes where epochs start soon after each election, because entries without records do not
    last.  Also notices members that have ended unasked."""
    while True:
        stage.cluster.lives.look(stage.cluster.running)
        stage.deaths.settle(stage.zookeeper.partitions)
        await trio.sleep(0.1)


def _death_line(death: Any) -> dict[str, Any]:
    line = asdict(death)
    tp = line.pop("tp")
    return {**line, "topic": tp[0], "partition": tp[1], "below": death.below}


def execute(options: Options, progress: Progress) -> Any:
    """Makes one run under trio; Ctrl-C and SIGTERM stop everything in order."""
    run = Run(options, progress)
    return trio.run(with_signals, run.execute)


async def with_signals(work: Callable[[], Any]) -> Any:
    """Does the work; SIGTERM and SIGHUP end it as Ctrl-C does."""
    import signal

    result: Any = None
    stopped = False
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal stopped
                async for _ in signals:
                    stopped = True
                    nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            result = await work()
            nursery.cancel_scope.cancel()
    if stopped:
        raise StartError("stopped before it was over: no verdict")
    return result
