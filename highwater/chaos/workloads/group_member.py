"""One member of a consumer group, as a process of its own: it can be killed.

    python -m highwater.chaos.workloads.group_member SETTINGS.json

It reads, commits after each poll, and records what happens: assignments (with the committed offsets
that it got), records, commits, and answers about committed offsets.  SIGTERM makes it leave its
group.  Each member has a file of its own; `group_run` makes one history of them.

The three Python clients share this program; Java's is Apache Kafka's VerifiableConsumer.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from highwater.cluster.client_files import Way
from highwater.kafka.private_copy import use_private_copy

CLIENTS = ("kafka-python", "aiokafka", "confluent-kafka")
NO_OFFSET = -1
BACKOFF_S = 0.1
ASKING_S = 10.0
"""A question to the coordinator within a rebalance: while it closes, librdkafka answers none."""
Record = tuple[int, int, str, str | None]
"""Partition, offset, value, key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Way):
    """The settings of a member."""

    client: str
    process: str
    group: str
    topic: str
    out: str
    session_ms: int = 6000
    heartbeat_ms: int = 300
    protocol: str = "classic"
    """classic, or consumer (KIP-848), whose times and assignor are the broker's."""


class MemberHistory:
    """Writes the member's history; each line is in the file before the next event."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._fd = os.open(member.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._operations = count(1)
        self.stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def op(self) -> int:
        return next(self._operations)

    def write(self, f: str, type_: str, **fields: Any) -> None:
        line = {
            "process": self._member.process,
            "client": self._member.client,
            "f": f,
            "type": type_,
            "t_ns": time.monotonic_ns(),
            "topic": self._member.topic,
            **{name: value for name, value in fields.items() if value is not None},
        }
        if f != "poll":
            line["group_id"] = self._member.group
        os.write(self._fd, (json.dumps(line) + "\n").encode())

    def assigned(
        self, told: Iterable[tuple[int, int | None]], generation: int | None, member: str | None
    ) -> None:
        for partition, offset in told:
            answer = NO_OFFSET if offset is None else offset
            self.write(
                "assign", "ok", partition=partition, offset=answer, generation=generation,
                member=member,
            )  # fmt: skip

    def assignment(self, partitions: Iterable[int]) -> None:
        """Writes the whole assignment, for which the harness waits; the history leaves it out."""
        self.write("assigned_all", "ok", partitions=sorted(partitions))

    def polled(self, records: Sequence[Record]) -> None:
        op = self.op()
        for partition, offset, value, key in records:
            self.write(
                "poll", "ok", op=op, poll_id=op, n=len(records), partition=partition,
                offset=offset, value=value, key=key,
            )  # fmt: skip

    def begin(self, f: str, offsets: dict[int, int]) -> dict[int, int]:
        """Writes invoke lines; returns the operation number of each partition."""
        operations = {partition: self.op() for partition in offsets}
        for partition, op in operations.items():
            offset = offsets[partition] if f == "commit" else None
            self.write(f, "invoke", op=op, partition=partition, offset=offset)
        return operations

    def end(
        self, f: str, operations: dict[int, int], offsets: dict[int, int], error: str | None = None
    ) -> None:
        for partition, op in operations.items():
            self.write(
                f, "info" if error else "ok", op=op, partition=partition,
                offset=offsets.get(partition), error=error,
            )  # fmt: skip


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode()


def positions(records: Iterable[Record]) -> dict[int, int]:
    """The offsets to commit after these records."""
    found: dict[int, int] = {}
    for partition, offset, _, _ in records:
        found[partition] = max(found.get(partition, 0), offset + 1)
    return found


def _settings(member: Member) -> dict[str, Any]:
    """The settings under the names of kafka-python and aiokafka."""
    return {
        **member.connect(member.client),
        "client_id": member.process,
        "group_id": member.group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": member.session_ms,
        "heartbeat_interval_ms": member.heartbeat_ms,
    }


def forget_old_answers(coordinator: Any, partitions: Any) -> None:
    """Drops an answer for which a former caller did not wait: kafka-python keeps it for the next
    request about the same partitions (docs/client-problems.md)."""
    coordinator._offset_fetch_futures.pop(frozenset(partitions), None)


def polls_on(error: Any) -> bool:
    """Whether the next poll may succeed after this error: a connection broke during the search for
    the coordinator, or a leader is no longer in Metadata; kafka-python calls the latter final
    (docs/client-problems.md)."""
    return bool(error.retriable) or type(error).__name__ == "UnknownBrokerIdError"


def kafka_python(member: Member, history: MemberHistory) -> None:
    """Runs one consumer after the other, until the member shall leave."""
    while not history.stopping:
        _kafka_python_consumer(member, history)
        time.sleep(BACKOFF_S)


def _kafka_python_consumer(member: Member, history: MemberHistory) -> None:
    """Consumes until the member shall leave, or the consumer may be broken: a TLS handshake that is
    reset ends some of its tasks (docs/client-problems.md)."""
    from kafka import (
        AsyncConsumerRebalanceListener,
        KafkaConsumer,
        OffsetAndMetadata,
        TopicPartition,
    )
    from kafka.errors import KafkaError

    try:
        consumer = KafkaConsumer(**_settings(member))
    except (KafkaError, OSError) as error:
        if isinstance(error, KafkaError) and not error.retriable:
            raise
        return

    class Listener(AsyncConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None: ...

        async def on_partitions_assigned(self, assigned: Any) -> None:
            coordinator = consumer._coordinator
            operations = history.begin("committed", {tp.partition: 0 for tp in assigned})
            told: dict[Any, Any] = {}
            if operations:
                forget_old_answers(coordinator, assigned)
                told = await coordinator.fetch_committed_offsets_async(set(assigned), 30_000)
            answers = dict.fromkeys(operations, NO_OFFSET)
            answers |= {tp.partition: found.offset for tp, found in told.items()}
            history.end("committed", operations, answers)
            known = coordinator._generation
            history.assigned(answers.items(), known.generation_id, known.member_id)
            history.assignment(answers)

    def commit(offsets: dict[int, int]) -> None:
        consumer.commit(
            {
                TopicPartition(member.topic, p): OffsetAndMetadata(offset, "", -1)
                for p, offset in offsets.items()
            }
        )

    consumer.subscribe([member.topic], listener=Listener())
    while not history.stopping:
        try:
            # a shorter poll may lose an assignment (docs/client-problems.md)
            polled = consumer.poll(1000)
        except KafkaError as error:
            if not polls_on(error):
                raise
            continue
        except OSError:
            history.assignment([])
            break
        records = [
            (r.partition, r.offset, r.value.decode(), _text(r.key))
            for some in polled.values()
            for r in some
        ]
        _take(history, records, commit)
    else:
        history.write("leaving", "ok")
    try:
        consumer.close(autocommit=False, timeout_ms=member.session_ms)
    except (KafkaError, OSError):  # then the group drops the member when its session has ended
        return


def confluent(member: Member, history: MemberHistory) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    own_times: dict[str, Any] = {
        "session.timeout.ms": member.session_ms,
        "heartbeat.interval.ms": member.heartbeat_ms,
        "partition.assignment.strategy": "range",
    }
    by_protocol: dict[str, dict[str, Any]] = {
        "classic": own_times,
        "consumer": {"group.protocol": "consumer"},
    }
    consumer = Consumer(
        {
            **member.connect(),
            "client.id": member.process,
            "group.id": member.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **by_protocol[member.protocol],
        }
    )

    owned: set[int] = set()
    pending: dict[int, int] = {}
    taken = 0

    def assigned(_: Any, partitions: list[Any]) -> None:
        pending.clear()  # these partitions are another member's now, or will be read again
        numbers = sorted(tp.partition for tp in partitions)
        owned.update(numbers)
        history.assignment(owned)
        operations = history.begin("committed", dict.fromkeys(numbers, 0))
        wanted = [TopicPartition(member.topic, n) for n in numbers]
        try:
            told = consumer.committed(wanted, timeout=ASKING_S)
            answers = {tp.partition: max(tp.offset, NO_OFFSET) for tp in told}
        except KafkaException as error:
            history.end("committed", operations, {}, str(error))
            for number in numbers:
                history.write("assign", "ok", partition=number)
            return
        history.end("committed", operations, answers)
        history.assigned(answers.items(), None, None)

    def commit(offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(member.topic, p, offset) for p, offset in offsets.items()]
        done = consumer.commit(offsets=wanted, asynchronous=False)
        failed = [tp.error for tp in done if tp.error is not None]
        if failed:
            raise KafkaException(failed[0])

    def revoked(_: Any, partitions: list[Any]) -> None:
        """Gives up partitions: with the classic protocol all of them."""
        pending.clear()
        owned.difference_update(tp.partition for tp in partitions)

    def refused(error: Any) -> None:
        """Assigns the partitions again, because librdkafka does not repeat a request for offsets
        that an old coordinator has refused."""
        if error.code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
            print(f"assigned again: {error}", file=sys.stderr, flush=True)
            pending.clear()
            held = [TopicPartition(tp.topic, tp.partition) for tp in consumer.assignment()]
            if member.protocol == "classic":
                consumer.assign(held)
            else:
                consumer.incremental_unassign(held)
                consumer.incremental_assign(held)
            for tp in held:  # each is read from the committed offset again
                history.write("assign", "ok", partition=tp.partition)

    # one record at a time: a batch of `consume` may hold records from before a rebalance
    consumer.subscribe([member.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not history.stopping:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            value, key = message.value().decode(), _text(message.key())
            record = (message.partition(), message.offset(), value, key)
            history.polled([record])
            pending.update(positions([record]))
            taken += 1
        elif message is not None:
            refused(message.error())
        if pending and (message is None or taken % 50 == 0):
            _commit(history, dict(pending), commit)
            pending.clear()
    history.write("leaving", "ok")
    consumer.close()


def _take(
    history: MemberHistory,
    records: list[Record],
    commit: Callable[[dict[int, int]], None],
) -> None:
    if not records:
        return
    history.polled(records)
    _commit(history, positions(records), commit)


def _commit(
    history: MemberHistory, offsets: dict[int, int], commit: Callable[[dict[int, int]], None]
) -> None:
    operations = history.begin("commit", offsets)
    try:
        commit(offsets)
    except Exception as error:  # the commit's outcome is unknown; the group goes on
        history.end("commit", operations, offsets, f"{type(error).__name__}: {error}"[:200])
        return
    history.end("commit", operations, offsets)


async def aiokafka(member: Member, history: MemberHistory) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

    from highwater.chaos.workloads.aiokafka_log import OffsetFetchAnswers

    answered = OffsetFetchAnswers.follow(history.write)
    consumer = AIOKafkaConsumer(**_settings(member))

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None: ...

        async def on_partitions_assigned(self, assigned: Any) -> None:
            # the client fetches while this waits for an answer, so note the assignment first
            coordinator = consumer._coordinator
            for tp in sorted(assigned):
                history.write(
                    "assign", "ok", partition=tp.partition, generation=coordinator.generation,
                    member=coordinator.member_id,
                )  # fmt: skip
            history.assignment(tp.partition for tp in assigned)
            for tp in sorted(assigned):
                operations = history.begin("committed", {tp.partition: 0})
                refused = answered.refused
                told = await consumer.committed(TopicPartition(member.topic, tp.partition))
                error = None
                if told is None and answered.refused > refused:
                    error = "refused, which this client takes for: nothing is committed"
                answer = NO_OFFSET if told is None else int(told)
                history.end("committed", operations, {tp.partition: answer}, error)

    await consumer.start()
    consumer.subscribe([member.topic], listener=Listener())
    try:
        while not history.stopping:
            polled = await consumer.getmany(timeout_ms=200)
            records = [
                (r.partition, r.offset, r.value.decode(), _text(r.key))
                for some in polled.values()
                for r in some
            ]
            if not records:
                continue
            history.polled(records)
            offsets = positions(records)
            operations = history.begin("commit", offsets)
            wanted = {TopicPartition(member.topic, p): o for p, o in offsets.items()}
            try:
                await consumer.commit(wanted)
            except Exception as error:
                history.end("commit", operations, offsets, f"{type(error).__name__}: {error}"[:200])
            else:
                history.end("commit", operations, offsets)
        history.write("leaving", "ok")
    finally:
        await consumer.stop()


def main(path: str) -> None:
    """Runs the member that the settings file describes."""
    faulthandler.enable()  # a member that hangs is aborted, and its log shows in which call
    member = Member(**json.loads(Path(path).read_text(encoding="utf-8")))
    history = MemberHistory(member)
    match member.client:
        case "kafka-python":
            use_private_copy()
            kafka_python(member, history)
        case "confluent-kafka":
            confluent(member, history)
        case "aiokafka":
            asyncio.run(aiokafka(member, history))
        case _:
            sys.exit(f"{member.client} is none of the clients {', '.join(CLIENTS)}")


if __name__ == "__main__":
    main(sys.argv[1])
