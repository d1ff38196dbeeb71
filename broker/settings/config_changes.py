"""Follows configuration that changes at run time: of topics, brokers, users, clients, addresses,
groups.

A broker or tool that changes /config/topics/T also adds a sequential znode under /config/changes
that names T.  Every broker watches that folder, and for each new child reads the named
configuration again.  It sets the watch with the listing and then reads, so that no change falls in
between.  Children are old after fifteen minutes, and any broker that then sees them removes them; a
broker reads all configurations at its start, so it needs none of the old ones.

Source: kafka.common.ZkNodeChangeNotificationListener, kafka.server.ZkConfigManager.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import trio

from highwater.broker.settings.client_quotas import entity_names, read_entity
from highwater.kafka import znodes
from highwater.kafka.config.property_table import TOPIC, without_effect
from highwater.world.api import ConnectionLoss, NoNode, SessionExpired, WatchEvent, ZooKeeper

log = logging.getLogger(__name__)

ApplyTopic = Callable[[str, Mapping[str, str]], None]
ApplyEntity = Callable[[str, Mapping[str, str]], None]
"""Gets a path below /config/ (users/U, users/U/clients/C, brokers/N ...) and its properties; may
raise ValueError."""
CHANGE_EXPIRATION_S = 15 * 60
RETRY_S = 0.1


class TopicConfigs:
    """Topics' overrides.  They are applied whenever they are read: after a change, for a new topic,
    and by DescribeConfigs, so that a broker shows what it applies.
    """

    def __init__(self, apply: ApplyTopic) -> None:
        self.apply = apply
        self._applied: dict[str, int] = {}
        """The ZooKeeper transaction of the newest change that was applied."""
        self.at_start: frozenset[str] = frozenset()
        """Topics that were read when the session began, until the first LeaderAndIsr in it."""

    async def look(self, zk: ZooKeeper, topic: str) -> dict[str, str]:
        """Reads and applies a topic's overrides; it has none without a configuration znode.

        Two concurrent reads may end in either order, so an older change is not applied after a
        newer one.  Raises ValueError for a znode that cannot be decoded.
        """
        try:
            data, stat = await zk.get(znodes.config_path("topics", topic))
        except NoNode:
            self._applied.pop(topic, None)
            self.apply(topic, {})
            return {}
        overrides = znodes.decode_config(data)
        if stat.mzxid > self._applied.get(topic, 0):
            self._applied[topic] = stat.mzxid
            self.apply(topic, overrides)
            if passed_over := without_effect(overrides, TOPIC):
                log.warning("topic %s: without effect here: %s", topic, ", ".join(passed_over))
        return overrides


class TopicConfigSource(Protocol):
    """A broker's session, if it has one, and its topics' configurations."""

    @property
    def session(self) -> ZooKeeper | None: ...

    @property
    def zk(self) -> ZooKeeper:
        """The live session; raises ApiError while there is none."""

    @property
    def topic_configs(self) -> TopicConfigs: ...


async def load_new_topics(
    source: TopicConfigSource, new: Iterable[str], others: Iterable[str] = ()
) -> None:
    """Reads the configuration of topics whose partitions will be hosted here: `new` topics, and
    `others`, which may have been new while this broker was away.

    A new topic is not announced under /config/changes, so this is the only way to learn its
    configuration in time.  While ZooKeeper does not answer, this waits, rather than serve a topic
    under wrong rules; once the session has ended, the next one reads everything.  A broker that
    starts has just read the topics that it hosts, and does not read those again.
    """
    configs = source.topic_configs
    known, configs.at_start = configs.at_start, frozenset()
    for topic in dict.fromkeys((*new, *(topic for topic in others if topic not in known))):
        while (zk := source.session) is not None and not zk.expired:
            try:
                await source.topic_configs.look(zk, topic)
            except ConnectionLoss:
                await trio.sleep(RETRY_S)
                continue
            except SessionExpired:
                return
            except ValueError as e:
                log.warning("configuration of topic %s is not understood: %s", topic, e)
                source.topic_configs.apply(topic, {})
            break


class Changes:
    """Follows one folder of sequential znodes for one ZooKeeper session, and gives the data of each
    new child to `apply`, which may raise ValueError or NoNode."""

    def __init__(
        self, zk: ZooKeeper, folder: str, prefix: str, apply: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._zk = zk
        self.folder = folder
        self._prefix = prefix
        self._apply = apply
        self.followed = -1
        """The number of the last announcement that was applied."""
        self._seen: dict[str, float] = {}
        self._changed = trio.Event()

    async def skip_old(self) -> None:
        """Skips the announcements so far: what they name will be read anyway."""
        self.followed = await self.announced()

    async def announced(self) -> int:
        """The number of the newest announcement; -1 if there is none."""
        names = await self._names(watched=False)
        return max(map(self._sequence, names), default=-1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follows changes until cancelled, or until the session ends (which raises ZkError)."""
        started = False
        while True:
            changed = self._changed = trio.Event()
            names = await self._names(watched=True)
            if not started:
                started = True
                task_status.started()
            await self._execute(names)
            await changed.wait()

    def _on_watch(self, _: WatchEvent) -> None:
        self._changed.set()

    async def _names(self, *, watched: bool) -> list[str]:
        watch = self._on_watch if watched else None
        names = await self._zk.children(self.folder, watch)
        return sorted((n for n in names if n.startswith(self._prefix)), key=self._sequence)

    async def _execute(self, names: list[str]) -> None:
        for name in names:
            sequence = self._sequence(name)
            if sequence <= self.followed:
                continue
            try:
                data, _ = await self._zk.get(f"{self.folder}/{name}")
                await self._apply(data)
            except NoNode:
                pass  # already purged
            except ValueError as e:
                log.warning("%s/%s is not understood: %s", self.folder, name, e)
            self.followed = sequence
        await self._purge(names)

    async def _purge(self, names: list[str]) -> None:
        """Removes children seen over fifteen minutes ago: all live brokers have read them."""
        now = trio.current_time()
        self._seen = {name: self._seen.get(name, now) for name in names}
        for name, since in self._seen.items():
            if now - since < CHANGE_EXPIRATION_S:
                return
            with suppress(NoNode):
                await self._zk.delete(f"{self.folder}/{name}")

    def _sequence(self, name: str) -> int:
        digits = name.removeprefix(self._prefix)
        return int(digits) if digits.isdigit() else -1


class DynamicConfigWatcher:
    """Follows /config/changes for one ZooKeeper session.

    `topics` reads every configured topic at the start, and after each change; `apply_entity` is
    called for everything else.
    """

    def __init__(
        self, zk: ZooKeeper, topics: TopicConfigs, apply_entity: ApplyEntity | None = None
    ) -> None:
        self._zk = zk
        self._topics = topics
        self._apply_entity = apply_entity
        self.changes = Changes(zk, znodes.CONFIG_CHANGES, "config_change_", self._announced)
        self.run = self.changes.run

    async def load(self, more: Sequence[str] = ()) -> None:
        """Reads every topic's configuration, and those of `more` kinds.  Call it (once a session)
        before serving."""
        await self.changes.skip_old()
        topics = sorted(await self._zk.children(f"{znodes.CONFIG}/topics"))
        for topic in topics:
            await self._apply(topic)
        self._topics.at_start = frozenset(topics)
        kinds = ("brokers", "clients", "ips", "users", *more)
        for kind in kinds if self._apply_entity else ():
            for name in await entity_names(self._zk, kind):
                await self._apply_other(f"{kind}/{name}")
                if kind == "users":
                    for client in await entity_names(self._zk, f"users/{name}/clients"):
                        await self._apply_other(f"users/{name}/clients/{client}")

    async def _announced(self, data: bytes) -> None:
        path = znodes.decode_config_change(data)
        kind, _, entity = path.partition("/")
        if kind == "topics":
            await self._apply(entity)
        else:
            await self._apply_other(path)

    async def _apply(self, topic: str) -> None:
        try:
            overrides = await self._topics.look(self._zk, topic)
        except ValueError as e:
            log.warning("configuration of topic %s is not understood: %s", topic, e)
            return
        log.info("topic %s: configuration %s", topic, overrides)

    async def _apply_other(self, path: str) -> None:
        if self._apply_entity is None:
            return
        try:
            config = await read_entity(self._zk, path)
            self._apply_entity(path, config)
        except ValueError as e:
            log.warning("configuration of %s is not understood: %s", path, e)
