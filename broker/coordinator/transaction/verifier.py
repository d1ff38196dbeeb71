"""Asks a transaction coordinator whether a partition belongs to a producer's open transaction, or,
for a client of transaction.version 2, to add the partition to it.

If this broker is the coordinator, the answer to the first comes at once.  Other coordinators get
the question in an AddPartitionsToTxn v4, with or without verifyOnly.  Each has one request under
way; the next takes all questions that have come meanwhile, one for each transactional id.  A broker
that does not know v4 (before 3.5) cannot answer, so transactions that it coordinates are not
protected, and get no partition by themselves.

Source: kafka.server.AddPartitionsToTxnManager; KIP-890.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import trio

from highwater.broker.coordinator.transaction.transaction import Identity
from highwater.broker.membership.peer_link import Link
from highwater.kafka.client.retries import code_of
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.codec import BadMessage
from highwater.kafka.wire.messages import AddPartitionsToTxnRequest

if TYPE_CHECKING:
    from highwater.broker.metadata.metadata_cache import MetadataCache
    from highwater.kafka.config import Config
    from highwater.world.api import World

log = logging.getLogger(__name__)

VERSION = 4
AT_ONCE = 500

Answers = dict[TopicPartition, ErrorCode]
Done = Callable[[Answers], None]


class Question(NamedTuple):
    transactional_id: str
    producer: Identity
    partitions: Sequence[TopicPartition]
    add: bool
    """Whether to add the partitions where they are missing."""
    done: Done

    def answer(self, code: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, code))


class Knows(Protocol):
    """This broker's own coordinator.  `verify` raises ApiError if another one must be asked."""

    def partition_of(self, name: str) -> TopicPartition: ...

    def verify(
        self, transactional_id: str, producer: Identity, partitions: Iterable[TopicPartition]
    ) -> Answers: ...

    def add_by_broker(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode], None],
    ) -> None: ...


class Verifier:
    """Asks, and calls the `done` of each question once, perhaps at once."""

    def __init__(
        self,
        config: Config,
        world: World,
        metadata: MetadataCache,
        coordinator: Knows,
    ) -> None:
        self._config = config
        self._world = world
        self._metadata = metadata
        self._coordinator = coordinator
        self._brokers: dict[int, _Broker] = {}
        self._nursery: trio.Nursery | None = None

    def ask(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Sequence[TopicPartition],
        done: Done,
        *,
        add: bool = False,
    ) -> None:
        question = Question(transactional_id, producer, partitions, add, done)
        leader = self._metadata.leader_of(self._coordinator.partition_of(transactional_id))
        if leader == self._config.broker_id:
            self._ask_here(question)
        elif leader < 0 or self._nursery is None:
            question.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            broker = self._brokers.get(leader)
            if broker is None:
                link = Link(self._config, self._world, self._metadata, leader, "txn-verifier")
                broker = self._brokers[leader] = _Broker(link)
                self._nursery.start_soon(broker.run)
            broker.questions.append(question)
            broker.news.set()

    def _ask_here(self, question: Question) -> None:
        asked = question.transactional_id, question.producer, question.partitions
        try:
            if question.add:
                self._coordinator.add_by_broker(*asked, lambda c: question.answer(translated(c)))
                return
            answers = self._coordinator.verify(*asked)
        except ApiError as e:
            question.answer(e.code)
        else:
            question.done({tp: translated(code) for tp, code in answers.items()})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()


class _Broker:
    """The questions for one coordinator."""

    def __init__(self, link: Link) -> None:
        self.questions: deque[Question] = deque()
        self.news = trio.Event()
        self._link = link

    async def run(self) -> None:
        while True:
            if not self.questions:
                self.news = trio.Event()
                await self.news.wait()
            asked = self._take()
            try:
                if await self._link.newest_version(AddPartitionsToTxnRequest.API_KEY) < VERSION:
                    log.warning("broker %d cannot verify transactions", self._link.broker_id)
                    for question in asked.values():
                        question.answer(
                            ErrorCode.INVALID_TXN_STATE if question.add else ErrorCode.NONE
                        )
                    continue
                answer = await self._link.call(request_of(asked.values()), VERSION)
            except (OSError, BadMessage) as e:
                log.info("verifying with broker %d: %s", self._link.broker_id, e)
                self._link.close()
                for question in asked.values():
                    question.answer(ErrorCode.NETWORK_EXCEPTION)
            else:
                _answer(asked, answer)

    def _take(self) -> dict[str, Question]:
        """The oldest question of each transactional id; the others wait for the next request."""
        asked: dict[str, Question] = {}
        left: deque[Question] = deque()
        for question in self.questions:
            if question.transactional_id in asked or len(asked) >= AT_ONCE:
                left.append(question)
            else:
                asked[question.transactional_id] = question
        self.questions = left
        return asked


def translated(code: ErrorCode) -> ErrorCode:
    """The code for a producer, which knows nothing of the verification."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def request_of(questions: Any) -> AddPartitionsToTxnRequest:
    entry = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic_class = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    entries = []
    for question in questions:
        topics: dict[str, list[int]] = {}
        for tp in question.partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        entries.append(
            entry(
                transactional_id=question.transactional_id,
                producer_id=question.producer.producer_id,
                producer_epoch=question.producer.epoch,
                verify_only=not question.add,
                topics=[topic_class(name=n, partitions=ps) for n, ps in topics.items()],
            )
        )
    return AddPartitionsToTxnRequest(transactions=entries)


def _answer(asked: dict[str, Question], answer: Any) -> None:
    whole = code_of(answer.error_code)
    found: dict[str, Answers] = {}
    for result in answer.results_by_transaction or ():
        found[result.transactional_id] = {
            TopicPartition(topic.name, p.partition_index): code_of(p.partition_error_code)
            for topic in result.topic_results
            for p in topic.results_by_partition
        }
    for name, question in asked.items():
        codes = found.get(name, {})
        missing = whole or ErrorCode.NETWORK_EXCEPTION
        question.done({tp: translated(codes.get(tp, missing)) for tp in question.partitions})
