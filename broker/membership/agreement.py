"""Delays the answer to a change until every broker shows the change.

The controller creates, extends or deletes a topic, and sends UpdateMetadata to each broker; each
broker follows topics' configurations under /config/changes.  Both reach some brokers a little later
than others, and a client that got its answer in between would meet "unknown partition", or the old
configuration.  So the broker that will answer first asks each of the others, in Kafka's own
requests, until they show the same.

Access rules, SCRAM users, quotas, delegation tokens and brokers' configurations are announced by
numbered znodes in three folders.  For these, each broker is asked how far it has followed the
folders: DescribeConfigs of a broker answers that under the name FOLLOWED.  Apache Kafka's brokers
do not know the name, and nobody waits for them.

A broker that does not answer is left out: it delays an answer by `PATIENCE_S` at most.  A broker
that answers but does not agree delays it by at most `LIMIT_MS` (for announcements
`FOLLOWED_LIMIT_MS`), or three quarters of the request's time-out if that is less: a client that
gave up at the time-out would ask again, and get the answer that the topic exists.  Apache Kafka's
brokers are asked about topics in the same way.  This deviates from Apache Kafka, which answers as
soon as the answering broker itself shows the change, or has written it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from highwater.broker.membership.peer_link import Link
from highwater.kafka.config.property_row import text_of
from highwater.kafka.config.topic_values import typed
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.features import Levels
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.messages import (
    ApiVersionsRequest,
    DescribeConfigsRequest,
    MetadataRequest,
)
from highwater.world.api import ZkError

if TYPE_CHECKING:
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.broker.settings.config_changes import TopicConfigSource
    from highwater.kafka.config import Config
    from highwater.kafka.types import BrokerId
    from highwater.world.api import World

log = logging.getLogger(__name__)

LIMIT_MS = 5000
"""The limit for an answer as a whole; less if the request's own time-out is shorter."""
FOLLOWED_LIMIT_MS = 1000
FOLLOWED = "highwater.changes.followed"
"""The name under which DescribeConfigs has `folder=number` for each folder, with commas."""
PATIENCE_S = 1.0
"""The time in which a broker must answer one question."""
MOST_ASKED = 100
"""The number of questions under way at once; further answers go out without asking."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.2
_METADATA_VERSION, _CONFIGS_VERSION, _FEATURES_VERSION = 5, 1, 3
_TOPIC, _BROKER, _TOPIC_CONFIG = 2, 4, 1  # kinds of resource, and a source of values


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask.  `request` makes the request for a broker's id; `agrees` says whether the answer
    shows the change, and `here` whether this broker shows it."""

    request: Callable[[int], Any]
    version: int
    agrees: Callable[[Any], Awaitable[bool]]
    here: Callable[[], bool] = lambda: True
    limit_ms: int = LIMIT_MS


def about_topics(wanted: Mapping[str, tuple[int, ...]]) -> Question:
    """Whether these partitions of each topic have leaders; without any, whether it is gone."""

    async def agrees(answer: Any) -> bool:
        return all(_shows(topic, wanted[topic.name]) for topic in answer.topics)

    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in wanted],
        allow_auto_topic_creation=False,
    )
    return Question(lambda _: request, _METADATA_VERSION, agrees)


def _shows(topic: Any, partitions: tuple[int, ...]) -> bool:
    if not partitions:
        return bool(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    led = {p.partition_index for p in topic.partitions if p.leader_id >= 0}
    return led.issuperset(partitions)


def about_configs(source: TopicConfigSource, topics: Sequence[str]) -> Question:
    """Whether a broker shows the overrides that these topics have at that moment, as another client
    may change them meanwhile.
    """

    async def agrees(answer: Any) -> bool:
        for result in answer.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # it was deleted meanwhile
            if result.error_code != ErrorCode.NONE:
                return False
            shown = {c.name: c.value for c in result.configs if c.config_source == _TOPIC_CONFIG}
            try:
                now = await source.topic_configs.look(source.zk, result.resource_name)
            except (ApiError, ZkError, ValueError):
                continue
            if shown != _as_shown(now):
                return False
        return True

    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=name, configuration_keys=None
        )
        for name in topics
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False)
    return Question(lambda _: request, _CONFIGS_VERSION, agrees)


def _as_shown(overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides as DescribeConfigs shows them: each value as its type spells it."""
    return {name: text_of(value) for name, value in typed(overrides).items()}


def about_announcements(
    announced: Mapping[str, int], followed: Callable[[], Mapping[str, int]]
) -> Question:
    """Whether a broker has followed each folder to its number; `followed` is for this broker."""

    def reached(numbers: Mapping[str, int]) -> bool:
        # a broker that follows other folders but not this one never will: it has no authorizer, say
        return bool(numbers) and all(
            numbers.get(folder, wanted) >= wanted for folder, wanted in announced.items()
        )

    async def agrees(answer: Any) -> bool:
        told = [c.value for r in answer.results for c in r.configs if c.name == FOLLOWED]
        return not told or reached(_numbers(told[0]))

    def request(broker_id: int) -> Any:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(broker_id), configuration_keys=[FOLLOWED]
        )
        return DescribeConfigsRequest(resources=[resource], include_synonyms=False)

    return Question(
        request, _CONFIGS_VERSION, agrees, lambda: reached(followed()), FOLLOWED_LIMIT_MS
    )


def about_features(levels: Mapping[str, int], here: Callable[[], Levels]) -> Question:
    """Whether a broker uses these levels of features; `here` has those that this one uses."""

    def used(shown: Mapping[str, int]) -> bool:
        return all(shown.get(feature, 0) == level for feature, level in levels.items())

    async def agrees(answer: Any) -> bool:
        return used({f.name: f.max_version_level for f in answer.finalized_features})

    request = ApiVersionsRequest(client_software_name="broker", client_software_version="1")
    return Question(lambda _: request, _FEATURES_VERSION, agrees, lambda: used(dict(here())))


def told_of(followed: Mapping[str, int]) -> str:
    """The value of FOLLOWED."""
    return ",".join(f"{folder}={number}" for folder, number in followed.items())


def _numbers(told: str | None) -> dict[str, int]:
    pairs = (pair.partition("=") for pair in (told or "").split(",") if pair)
    return {folder: int(number) for folder, _, number in pairs}


class Asking:
    """One question to all other brokers; `over` once each has agreed or was left out."""

    def __init__(self, over: bool) -> None:
        self.over = over


class Agreement:
    """Asks the other brokers, but only while `run` runs."""

    def __init__(self, config: Config, world: World, metadata: MetadataCache) -> None:
        self._config = config
        self._world = world
        self._metadata = metadata
        self._nursery: trio.Nursery | None = None
        self._under_way = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    def begin(self, question: Question, timeout_ms: int, settled: Callable[[], None]) -> Asking:
        """Asks every other registered broker; calls `settled` at the end, unless the question is
        over at once.
        """
        limit_s = min(question.limit_ms, timeout_ms * 3 / 4) / 1000
        others = sorted(b for b in self._metadata.brokers() if b != self._config.broker_id)
        nobody = not others and question.here()
        if self._nursery is None or nobody or self._under_way >= MOST_ASKED:
            return Asking(over=True)
        asking = Asking(over=False)
        self._under_way += 1
        self._nursery.start_soon(self._ask_all, others, question, limit_s, asking, settled)
        return asking

    async def _ask_all(
        self,
        others: list[BrokerId],
        question: Question,
        limit_s: float,
        asking: Asking,
        settled: Callable[[], None],
    ) -> None:
        try:
            with trio.move_on_after(limit_s):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._look_here, question)
                    for broker_id in others:
                        nursery.start_soon(self._ask, broker_id, question)
        finally:
            self._under_way -= 1
        asking.over = True
        settled()

    async def _look_here(self, question: Question) -> None:
        while not question.here():
            await trio.sleep(_FIRST_PAUSE_S)

    async def _ask(self, broker_id: BrokerId, question: Question) -> None:
        link = Link(self._config, self._world, self._metadata, broker_id, "agreement")
        request, pause_s = question.request(broker_id), _FIRST_PAUSE_S
        try:
            while True:
                answer = None
                with trio.move_on_after(PATIENCE_S):
                    answer = await link.call(request, question.version)
                if answer is None:
                    log.info("broker %d does not answer, and is not waited for", broker_id)
                    return
                if await question.agrees(answer) or broker_id not in self._metadata.brokers():
                    return
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except (OSError, BadMessage) as e:
            log.info("broker %d is not waited for: %s", broker_id, e)
        except Exception:  # it would end the nursery, and with it this broker
            log.exception("broker %d is not waited for: its answer is not understood", broker_id)
        finally:
            link.close()
