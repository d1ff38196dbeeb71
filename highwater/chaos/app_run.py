"""A user's application under faults: `highwater chaos --app`.

    start the cluster  ->  start the copies, feed the input, inject faults  ->  mend, wait for the
    output  ->  stop the copies, read both topics  ->  the contract of docs/contract.md decides

The contract is written into the run's folder: `highwater verify --contract` reads the same.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
import urllib.request
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import cast

import trio

from highwater.chaos.aimed import app_verbs
from highwater.chaos.aimed.app_schedule import generate
from highwater.chaos.aimed.app_stage import Aim, AppStage, OutputControl
from highwater.chaos.aimed.commits import CommitWatcher
from highwater.chaos.aimed.doors import Doors
from highwater.chaos.aimed.windows import Windows
from highwater.chaos.aimed.wire import CopyWire, IdUse
from highwater.chaos.app_options import AppOptions
from highwater.chaos.app_processes import AppCluster, Copy, name_of
from highwater.chaos.app_traffic import Feeder, Watcher, count
from highwater.chaos.app_verdict import AppVerdict
from highwater.chaos.faults.engine import Engine
from highwater.chaos.progress import Progress
from highwater.chaos.versions import versions
from highwater.chaos.witnesses.deaths import DeathWitness
from highwater.cluster.faults.scene import Scene
from highwater.cluster.faults.schedule_form import check
from highwater.cluster.faults.verb_row import Kind
from highwater.cluster.faults.verb_table import lacks
from highwater.cluster.faults.witness import Witness
from highwater.cluster.faults.witnesses import witness_of
from highwater.cluster.interface import Cluster, controller, controller_ids
from highwater.cluster.processes.process_cluster import process_cluster
from highwater.cluster.processes.process_settings import Settings
from highwater.cluster.processes.zookeeper_process import for_a_proof
from highwater.cluster.run_folder import RunFolder, TopicInfo
from highwater.cluster.run_topics import create_topics
from highwater.verdict.contracts import contract_model as model
from highwater.verdict.contracts.judge import Judgement
from highwater.verdict.history import LineLog, read_lines
from highwater.verdict.report import app_data

PARTITIONS, BROKERS = 3, (1, 2, 3)
HEAL_S = 60.0
FIRST_S = 60.0
"""The time that an application has for its first output, before the schedule begins."""
QUIET_S = 2.0
SETTLE_S = 0.1
FENCES = 3
"""From this many fencings on, copies share a transactional id: none has taken over a dead one's."""
OFFSETS = "__consumer_offsets"


class AppRun:
    def __init__(self, options: AppOptions, progress: Progress) -> None:
        self.options = options
        self.progress = progress
        self.folder = RunFolder(options.out)
        self.path = self.folder.path / "contract.json"
        text = json.dumps(options.contract(), indent=1) + "\n"
        try:
            self.contract = model.load(str(self.path), lambda file: text)
        except model.ContractError as error:  # the file is not there yet
            raise model.ContractError(str(error).removeprefix(f"{self.path}: ")) from None
        self._text = text
        self.read = False
        self._connected = trio.Event()
        """Set once a copy has connected to the cluster: before that no input is sent."""
        self.windows = Windows(trio.current_time)
        self.verdict = AppVerdict(options, self.folder, self.contract, progress, self.windows)
        self._owners: dict[int, str] = {}
        self._ids = IdUse()
        self.topics = [TopicInfo(t, PARTITIONS, 3, 2) for t in (options.input, options.output)]
        apps = [name_of(n) for n in range(1, options.copies + 1)]
        self.schedule = options.schedule if options.schedule is not None else generate(
            options.seed, options.duration_s, options.input, options.group, apps,
            exactly_once=options.exactly_once, ordered=options.ordered, errors=options.errors,
        )  # fmt: skip
        scene = Scene(
            BROKERS,
            {t.name: t.partitions for t in self.topics},
            controllers=[
                controller(n) for n in controller_ids(len(BROKERS) * options.program.apart)
            ],
            apps=apps,
            lacks=lacks(
                *[Kind.DOORLESS, Kind.FOREIGN] * (options.program.name != "highwater"),
                *[Kind.KRAFT] * options.program.kraft,
            ),
        )
        check(self.schedule, scene, app_verbs.VERBS)

    async def execute(self) -> Judgement:
        options = self.options
        self.verdict.began = trio.current_time() - self.progress.elapsed_s()
        self.folder.create()
        self.path.write_text(self._text)
        self.progress.phase(f"starting three brokers ({options.program.name})")
        settings = Settings(
            self.folder.cluster,
            proxies=True,
            program=options.program,
            quick_end=True,
            properties=options.properties,
            internal_topics=True,
            zookeeper="" if options.program.kraft else for_a_proof(options.zookeeper),
        )
        async with process_cluster(settings) as cluster:
            self.verdict.zookeeper = cluster.zookeeper_kind
            self._write_about(cluster.zookeeper_kind)
            await create_topics(cluster, self.topics)
            cluster_log = LineLog(self.folder.witness)
            witness = witness_of(cluster, cluster_log)
            await trio.to_thread.run_sync(witness.start)
            try:
                for topic in (options.input, options.output, OFFSETS):
                    await trio.to_thread.run_sync(witness.watch_topic, topic)
                judgement = await self._break(cluster, witness)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(witness.close)
                cluster_log.close()
            self.progress.phase("stopping the cluster")
        return judgement

    def _write_about(self, zookeeper: str) -> None:
        """Writes app.json: what the report shows of the run in addition to its verdict."""
        options = self.options
        demanded = [f"every input {'exactly' if options.exactly_once else 'at least'} once"]
        demanded += ["in the order of its key"] * options.ordered
        about = {
            "run": self.folder.path.name,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "seed": options.seed,
            "runtime": f"process, {options.program.name}",
            "zookeeper": zookeeper,
            "command": options.app,
            "again": options.again,
            **{n: getattr(options, n) for n in ("copies", "group", "input", "output", "match")},
            "demanded": f"{', '.join(demanded)}, within {options.within_s:g} s",
            "versions": versions(),
        }
        (self.folder.path / app_data.ABOUT).write_text(json.dumps(about, indent=1) + "\n")

    async def _break(self, plain: Cluster, witness: Witness) -> Judgement:
        options = self.options
        names = [name_of(number) for number in range(1, options.copies + 1)]
        aims = {name: self._aim(plain, name) for name in names}
        apps = AppCluster(plain, self._copies(aims), self.progress.say)
        cluster = cast(Cluster, apps)
        self.verdict.deaths = DeathWitness(plain.data_dirs)
        self.verdict.stage = stage = AppStage(
            cluster, witness, random.Random(options.seed), deaths=self.verdict.deaths,
            workload=OutputControl(aims), topics=self.topics, apps=apps, windows=self.windows,
            output=options.output, aims=aims, owners=self._owners,
        )  # fmt: skip
        faults_log = LineLog(self.folder.faults)
        lives_log = LineLog(self.folder.cluster / "processes.jsonl")
        traffic_log = LineLog(self.folder.path / app_data.TRAFFIC)
        plain.lives.write_to(lives_log)
        apps.copies_lives.write_to(lives_log)
        source = self.contract.topics[options.output].sources["id"]
        run, path = f"r{options.seed}-{int(time.time()) % 1_000_000}", source["path"]
        apps.after_an_end = stage.buries
        where, windows = plain.direct_bootstrap, self.windows
        feeder = Feeder(where, options.input, run, path, options.values, windows.sent)
        output = (where, options.output, PARTITIONS, source)
        watcher = Watcher(*output, tell=windows.shown, passed=windows.passed)
        stored = Watcher(*output, "read_uncommitted", windows.stored)
        commits = CommitWatcher(where, options.input, windows)
        engine = Engine(stage, faults_log, self.progress.say, app_verbs.VERBS)
        try:
            async with trio.open_nursery() as nursery:
                for aim in aims.values():
                    await aim.doors.serve(nursery)
                for copy in apps.copies.values():
                    apps.launch(copy)
                nursery.start_soon(count, traffic_log, feeder, watcher, windows)
                nursery.start_soon(apps.supervise)
                nursery.start_soon(stage.keep_leaving)
                nursery.start_soon(self._watch, aims, watcher.watch, stored.watch, commits.watch)
                nursery.start_soon(self._watch_reading, plain)
                nursery.start_soon(self._settle_deaths, witness)
                await self._feed_and_break(stage, engine, apps, feeder, watcher)
                await self._drain(apps, feeder, watcher)
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await apps.end_all()
            for lives in (plain.lives, apps.copies_lives):
                lives.write_to(None)
            for log in (faults_log, lives_log, traffic_log):
                log.close()
        self._notice(engine, apps, feeder)
        left = feeder.left + watcher.left + stored.left + commits.left
        return await trio.to_thread.run_sync(
            self.verdict.check, plain.direct_bootstrap, feeder, apps, left
        )

    async def _settle_deaths(self, witness: Witness) -> None:
        """Notes each dead leader's successor; runs for ever, because the dead one may lead again
        before the run ends, and then its successor could not be seen any more."""
        while True:
            self.verdict.deaths.settle(witness.partitions)
            await trio.sleep(SETTLE_S)

    def _aim(self, cluster: Cluster, name: str) -> Aim:
        def owns(partition: int) -> None:
            self._owners[partition] = name

        wire = CopyWire(self.options.input, self.options.output, owns)
        wire.begins = partial(self._ids.begins, name)
        wire.fenced = lambda: self._ids.fenced(name, wire.transactional_ids)
        return Aim(wire, Doors(cluster, wire))

    def _copies(self, aims: dict[str, Aim]) -> list[Copy]:
        options = self.options
        made = []
        for number, aim in enumerate(aims.values(), 1):
            env = os.environ | {
                "KAFKA_BOOTSTRAP_SERVERS": aim.doors.bootstrap,
                "KAFKA_GROUP_ID": options.group,
                "KAFKA_TRANSACTIONAL_ID": f"{options.group}-{number}",
                "HIGHWATER_COPY": str(number),
                "HIGHWATER_COPIES": str(options.copies),
                "HIGHWATER_INPUT": options.input,
                "HIGHWATER_OUTPUT": options.output,
                "PYTHONUNBUFFERED": "1",
            }
            log = self.folder.path / f"{name_of(number)}.log"
            made.append(Copy(name_of(number), options.app, env, log))
        return made

    async def _feed_and_break(
        self,
        stage: AppStage,
        engine: Engine,
        apps: AppCluster,
        feeder: Feeder,
        watcher: Watcher,
    ) -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._feed, feeder, stop)
            await self._first_output(apps, watcher)
            if not apps.gave_up.is_set():
                works = "the application works, " if watcher.ids else ""
                self.progress.phase(f"{works}faults are injected", self.options.duration_s)
                self._connected.set()  # a copy with a client id such as `3` was taken for a broker
                await self._inject(stage, engine, apps)
            stop.set()

    async def _feed(self, feeder: Feeder, stop: trio.Event) -> None:
        while not self._connected.is_set():
            if stop.is_set():
                return
            await trio.sleep(0.05)
        await feeder.feed(self.options.rate, stop)

    async def _watch(self, aims: dict[str, Aim], *watches: Callable[[], Awaitable[None]]) -> None:
        """Watches the topics from the moment when a copy has connected."""
        while not self._connected.is_set():
            if any(aim.doors.connected() for aim in aims.values()):
                self._connected.set()
            await trio.sleep(0.05)
        async with trio.open_nursery() as nursery:
            for watch in watches:
                nursery.start_soon(watch)

    async def _inject(self, stage: AppStage, engine: Engine, apps: AppCluster) -> None:
        async with trio.open_nursery() as faults:

            async def give_up() -> None:
                await apps.gave_up.wait()
                faults.cancel_scope.cancel()

            faults.start_soon(give_up)
            await engine.run(self.schedule, self.options.duration_s)
            faults.cancel_scope.cancel()
        self.progress.phase("healing")
        await engine.mend()
        if not apps.gave_up.is_set():
            late = await stage.wait_healthy(HEAL_S)
            self.verdict.missing += [f"{HEAL_S:g} s after healing, {p}" for p in late]

    async def _first_output(self, apps: AppCluster, watcher: Watcher) -> None:
        """Waits for the first output: a fault on an idle application would prove nothing."""
        self.progress.phase("waiting for the application's first output", FIRST_S)
        with trio.move_on_after(FIRST_S):
            while not watcher.ids and not apps.gave_up.is_set():
                await trio.sleep(0.05)
        if not watcher.ids and self.schedule and not apps.gave_up.is_set():
            self.verdict.missing.append(
                f"nothing had come out in {self.options.output} {FIRST_S:g} s after the start, "
                "when the faults began"
            )

    async def _drain(self, apps: AppCluster, feeder: Feeder, watcher: Watcher) -> None:
        """Waits until the output is complete and at rest, or the application's time is over."""
        if apps.gave_up.is_set():
            return
        self.progress.phase("waiting for the output", self.options.within_s)
        with trio.move_on_after(self.options.within_s + 1):
            while not apps.gave_up.is_set() and not (
                feeder.acknowledged <= watcher.ids and trio.current_time() - watcher.last > QUIET_S
            ):
                await trio.sleep(0.1)

    async def _watch_reading(self, cluster: Cluster) -> None:
        """Learns from the brokers' metrics whether the input was read; only the copies read it."""
        known = [a for n in cluster.brokers if (a := cluster.metrics_address(n))]
        self.read = not known
        name = "kafka_server_brokertopicmetrics_bytesoutpersec"
        out = re.compile(rf'^{name}\{{.*topic="{re.escape(self.options.input)}".*\}} (\S+)$', re.M)
        while not self.read:
            for address in known:
                with suppress(OSError):
                    page = await trio.to_thread.run_sync(_page, address, abandon_on_cancel=True)
                    self.read |= any(float(number) > 0 for number in out.findall(page))
            await trio.sleep(0.5)

    def _notice(self, engine: Engine, apps: AppCluster, feeder: Feeder) -> None:
        verdict = self.verdict
        if (why := apps.why_given_up()) is not None:
            verdict.problems.append(why)
            return
        if self._ids.fences >= FENCES:
            verdict.problems.append(f"copies fenced each other {self._ids.fences} times")
        if not self.read:
            verdict.problems.append(f"no copy of the application ever read {self.options.input}")
        if not feeder.acknowledged:
            verdict.missing.append(f"no record of {self.options.input} was acknowledged")
        fired = list(read_lines(self.folder.faults))
        if engine.planned > len(fired):
            verdict.missing.append(f"{engine.planned} faults were planned, {len(fired)} fired")
        for fault in fired:
            if not fault["effect"]:
                told = f"{fault['name']} on {fault['target']}"
                verdict.missing.append(f"fault {told} had no visible effect")


def _page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        return str(answer.read().decode())
