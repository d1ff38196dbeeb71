"""Damaged znodes, as another program or an operator may leave them in ZooKeeper.

`Play` damages those of a whole simulated cluster: brokers and the controller meet damaged znodes
while records are written, are killed and started among them, and find all of them mended in the
end.  The topic of the records is spared, for its own znodes say where its records are.

No broker ends but by one clear line at its start, none writes a traceback, and at the end the
cluster serves, with every acknowledged record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import trio

from highwater.broker.server import Broker, BrokerError, HaltError, StartError
from highwater.kafka import token_znodes, znodes
from highwater.kafka.config import Config
from highwater.kafka.security.delegation_tokens import SECRET
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.record_codec import Record
from highwater.kafka.wire.records import build_batch
from highwater.simulation.cluster import DATA, PORT, Shape
from highwater.simulation.workloads.plain_client import Failed, SimClient
from highwater.world.api import NodeExists, NoNode, ZkError, ZooKeeper
from highwater.world.sim import ZOOKEEPER, Kernel, Simulation, SimWorld, run_simulation
from tests.fuzzing.znode_samples import EXAMPLES, NAMES, TOKEN_CHANGE, damaged_data

KEPT = TopicPartition("kept", 0)
NOBODY_LEADS = (znodes.CONTROLLER_EPOCH, znodes.CLUSTER_ID)
"""While one of them is damaged no broker can become controller."""
BROKERS = 2
PATIENCE_S = 60.0


class Quarrels(logging.Handler):
    """Notes tracebacks in logs: a broker that meets bad input writes none."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.seen.append(f"{record.getMessage()[:200]}: {record.exc_info[1]!r}"[:500])


@contextmanager
def quarrels() -> Iterator[list[str]]:
    handler = Quarrels()
    logging.getLogger().addHandler(handler)
    try:
        yield handler.seen
    finally:
        logging.getLogger().removeHandler(handler)


class Planted(NamedTuple):
    """Data for one znode, kept because it found something."""

    path: str
    data: bytes


class Play:
    """One cluster under damage, by one seed."""

    def __init__(
        self,
        kernel: Kernel,
        nursery: trio.Nursery,
        seed: str,
        rounds: int,
        planted: Sequence[Planted],
    ) -> None:
        self.chance = Random(seed)
        self.rounds = rounds
        self.planted = planted
        self.simulation = Simulation(kernel)
        self.nursery = nursery
        self.hosts = {b: self.simulation.add_host(f"broker-{b}") for b in range(1, BROKERS + 1)}
        self.worlds: dict[int, SimWorld] = {}
        self.brokers: dict[int, Broker] = {}
        self.config = Shape(brokers=BROKERS, min_isr=1, session_timeout_ms=3000)
        self.done: list[str] = []
        self.refusals: list[str] = []
        self.deaths: list[str] = []
        self.acknowledged: list[bytes] = []
        self.shown: set[bytes] = set()

    def _config(self, broker: int) -> Config:
        return replace(
            self.config.config(broker, f"broker-{broker}"),
            authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
            originals={"super.users": "User:ANONYMOUS", SECRET: "s3cret"},
            delegation_token_expiry_check_interval_ms=1000,
            unclean_leader_election_enable=False,
        )

    # ---- brokers

    def start(self, broker: int) -> None:
        world = self.worlds[broker] = self.simulation.start(self.hosts[broker])
        world.disk.make_dirs(DATA)
        self.nursery.start_soon(self._live, broker, world)

    async def _live(self, broker: int, world: SimWorld) -> None:
        served = False

        async def program() -> None:
            nonlocal served
            made = self.brokers[broker] = Broker(self._config(broker), world, f"broker-{broker}")
            async with trio.open_nursery() as nursery:
                await nursery.start(made.run, trio.Event())
                served = True

        await world.process.run(program)
        failure = world.process.failure
        while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
            failure = failure.exceptions[0]
        # one whose session has ended may find that another broker has taken its id
        taken = isinstance(failure, StartError) and "is registered by" in str(failure)
        refused = isinstance(failure, HaltError) or (
            isinstance(failure, BrokerError) and not served
        )
        if taken or refused:
            self.refusals.append(str(failure))
            await trio.sleep(1)
            if self.worlds[broker] is world:  # as a service manager starts it again
                self.start(broker)
        elif failure is not None:
            self.deaths.append(f"broker {broker}: {failure!r}")

    def kill(self, broker: int) -> None:
        self.worlds[broker].process.kill()

    def _expire(self, broker: int) -> None:
        session = self.brokers[broker].services.session
        if session is not None:
            self.done.append(f"the session of broker {broker} ends")
            self.simulation.zookeeper.expire(session.session_id)

    # ---- damage

    async def _put(self, zk: ZooKeeper, planted: Planted) -> None:
        """One that is known: met by watches, then by a broker and a controller that begin."""
        self.done.append(str(planted))
        try:
            before, _ = await zk.get(planted.path)
            await zk.set(planted.path, planted.data)
        except NoNode:
            before = None
            await zk.create(planted.path, planted.data)
        if planted.path.startswith("/config/") and not planted.path.startswith("/config/changes"):
            change = znodes.encode_config_change(planted.path.removeprefix("/config/"))
            await zk.create(znodes.CONFIG_CHANGE_PREFIX, change, sequential=True)
        await trio.sleep(1)
        self._expire(1)
        self.kill(BROKERS)
        self.start(BROKERS)
        if planted.path not in NOBODY_LEADS:
            await self._insist(lambda: zk.delete(znodes.CONTROLLER))
        await trio.sleep(1)
        if before is not None:
            await zk.set(planted.path, before)
            return
        for path in (*self._below(planted.path), planted.path):
            with suppress(NoNode):
                await zk.delete(path)

    async def _spoil(self, zk: ZooKeeper) -> None:
        """One change, taken back a while later."""
        chance = self.chance
        if chance.random() < 0.35:
            await self._plant(zk)
            return
        path = chance.choice(self._paths())
        try:
            before, _ = await zk.get(path)
            data = damaged_data(chance, before or chance.choice(list(EXAMPLES.values())))
            self.done.append(f"{path} = {data[:300]!r}")
            await zk.set(path, data)
            await self._pass(zk)
            now, _ = await zk.get(path)
            if now == data:
                await zk.set(path, before)
        except NoNode:
            return  # it went with its broker, or was taken away by the controller

    def _paths(self) -> list[str]:
        """All znodes but ZooKeeper's, those that say where the records are, and announcements."""
        spared = ("/isr_change", "/log_dir_event", "/config/changes", "/kafka-acl-", "/zookeeper")
        found = [
            path
            for path in self.simulation.zookeeper.ensemble.nodes
            if path.count("/") > 1 or path in ("/controller", "/controller_epoch")
        ]
        found += ["/latest_producer_id_block", znodes.CLUSTER_ID]
        return sorted(
            p for p in found if KEPT.topic not in p.split("/") and not p.startswith(spared)
        )

    async def _plant(self, zk: ZooKeeper) -> None:
        """A new znode, as tools and other brokers add them."""
        chance = self.chance
        name = chance.choice(NAMES)
        place, kind, sequential = chance.choice(
            (
                (f"{znodes.TOPICS}/{name}", "topic", False),
                (f"{znodes.BROKER_IDS}/{name}", "broker", False),
                (f"{znodes.DELETE_TOPICS}/{name}", "config", False),
                (f"/config/topics/{name}", "config", False),
                (f"/config/brokers/{name}", "config", False),
                (f"/config/clients/{name}", "user", False),
                (f"/config/users/{name}", "user", False),
                (f"/config/ips/{name}", "user", False),
                (f"/kafka-acl/Topic/{name}", "acls", False),
                (token_znodes.token_path(name), "token", False),
                (TOKEN_CHANGE, "token-change", True),
                (znodes.REASSIGN_PARTITIONS, "reassignment", False),
                (znodes.PREFERRED_REPLICA_ELECTION, "partitions", False),
                (znodes.ISR_CHANGE_PREFIX, "partitions", True),
                (znodes.LOG_DIR_EVENT_PREFIX, "log-dir-event", True),
                (znodes.CONFIG_CHANGE_PREFIX, "config-change", True),
                (f"{znodes.CONFIG_CHANGES}/config_change_x", "old-config-change", False),
                ("/kafka-acl-changes/acl_changes_", "acl-change", True),
                ("/kafka-acl-extended-changes/acl_changes_", "prefixed-acl-change", True),
            )
        )
        data = EXAMPLES[kind]
        if chance.random() < 0.8:
            data = damaged_data(chance, data)
        self.done.append(f"{place} + {data[:300]!r}")
        try:
            made, _ = await zk.create(place, data, sequential=sequential)
        except NodeExists:
            return
        if "config/" in place and not sequential:
            entity = place.removeprefix("/config/")
            await zk.create(
                znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequential=True
            )
        if kind == "token":
            await zk.create(TOKEN_CHANGE, name.encode(), sequential=True)
        await self._pass(zk)
        for path in (*self._below(made), made):
            with suppress(NoNode):
                await zk.delete(path)

    def _below(self, path: str) -> list[str]:
        nodes = self.simulation.zookeeper.ensemble.nodes
        return sorted((p for p in nodes if p.startswith(f"{path}/")), reverse=True)

    async def _pass(self, zk: ZooKeeper) -> None:
        """Time goes by; perhaps a broker is killed and started, or the controller moves."""
        what = self.chance.random()
        if what < 0.2:
            broker = self.chance.choice(list(self.hosts))
            self.done.append(f"broker {broker} is killed and started")
            self.kill(broker)
            self.start(broker)
        elif what < 0.35:
            self.done.append("/controller is deleted")
            with suppress(NoNode):
                await zk.delete(znodes.CONTROLLER)
        elif what < 0.5:
            self._expire(self.chance.choice(list(self.hosts)))
        await trio.sleep(self.chance.choice((0.05, 0.5, 2.0)))

    # ---- records

    async def _write(self, client: SimClient) -> None:
        number = 0
        while True:
            number += 1
            value = f"record {number}".encode()
            batch = bytes(build_batch([Record(None, value, 1_700_000_000_000)]))
            try:
                await client.produce(KEPT, batch, -1)
                self.acknowledged.append(value)
            except Failed:
                client.forget(KEPT)
            await trio.sleep(0.05)

    async def _read(self, client: SimClient) -> None:
        at = 0
        while True:
            try:
                polled = await client.fetch(KEPT, at)
            except Failed:
                client.forget(KEPT)
                raise
            self.shown.update(value for _, _, value in polled.records)
            if polled.next_offset == at:
                return
            at = polled.next_offset

    # ---- the whole

    async def run(self) -> None:
        addresses = [(f"broker-{b}", PORT) for b in self.hosts]
        world = self.simulation.start(self.simulation.add_host("tool"))
        client = SimClient(world, "client", addresses)
        async with world.zookeeper(ZOOKEEPER, 60_000, 5000) as zk:
            for broker in self.hosts:
                self.start(broker)
            for topic in (KEPT.topic, "t", "t-2"):
                await self._make(client, topic)
            async with trio.open_nursery() as writing:
                writing.start_soon(self._write, client)
                for place in self.planted:
                    await self._put(zk, place)
                    assert not self.deaths, self.deaths
                for _ in range(self.rounds):
                    await self._spoil(zk)
                    assert not self.deaths, self.deaths
                first = len(self.acknowledged)
                with trio.move_on_after(PATIENCE_S):
                    while len(self.acknowledged) < first + 5:
                        await trio.sleep(0.1)
                assert len(self.acknowledged) >= first + 5, "it does not serve after all is mended"
                writing.cancel_scope.cancel()
            await self._make(client, "after")
            await self._insist(lambda: self._read(client))
        lost = [value for value in self.acknowledged if value not in self.shown]
        assert not lost, f"{len(lost)} acknowledged records are lost: {lost[:5]}"

    async def _make(self, client: SimClient, topic: str) -> None:
        """A topic; it may be made by an attempt that was answered with a time-out."""

        async def attempt() -> None:
            try:
                await client.create_topic(topic, 1, BROKERS)
            except Failed as failed:
                if failed.name != "TOPIC_ALREADY_EXISTS":
                    raise

        await self._insist(attempt)

    async def _insist(self, call: Any) -> None:
        failed: Exception | None = None
        with trio.move_on_after(PATIENCE_S):
            while True:
                try:
                    await call()
                    return
                except (Failed, ZkError) as error:
                    failed = error
                    await trio.sleep(0.1)
        raise AssertionError(f"a call did not succeed: {failed}")


def play(seed: str, rounds: int, planted: Sequence[Planted] = ()) -> Play:
    """Raises AssertionError with what was done, and what came of it."""
    played: list[Play] = []

    async def main(kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            played.append(Play(kernel, nursery, seed, rounds, planted))
            await played[0].run()
            nursery.cancel_scope.cancel()

    with quarrels() as seen:
        try:
            run_simulation(1, main)
            assert not seen, seen
        except BaseException as error:
            done = "\n".join(played[0].done[-12:]) if played else ""
            raise AssertionError(
                f"{seed}: {error!r}\ntracebacks: {seen[:3]}\nrefusals: {played[0].refusals[-3:]}\n"
                f"deaths: {played[0].deaths}\nwhat was done:\n{done}"
            ) from error
    return played[0]
