"""Runs transactions by librdkafka: tellers that move money, and a copier.

* A **teller** has a transactional id.  Each of its transactions moves an amount from one account (a
  partition of `bank`) to the other, and is committed, aborted, or abandoned.  Now and then another
  instance takes over the transactional id while the first one goes on without knowing it: the
  later actions of the first must have no effect (T4).  The transactions read the bank, too (T9).
* The **copier** reads `copy-in` and writes each value to `copy-out`, in transactions with its
  offsets.  It crashes now and then, and begins again from the committed offsets (T5).

Every send names its transaction; `init_txn` and `end_txn` are operations of their own.  A commit of
which success is not certain is `info`: the checks find out whether it took place.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from highwater.chaos.workloads.confluent import CLIENT, common, offset_of, serve
from highwater.chaos.workloads.recorder import Reader, Recorder, Sender, Topic
from highwater.chaos.workloads.workload_client import Client
from highwater.verdict.history import INFO, INVOKE, OK

BANK, COPY_IN, COPY_OUT = "bank", "copy-in", "copy-out"
COMMITTED = "read_committed"
TELLERS = 2
TIMEOUT_MS = 10_000
"""transaction.timeout.ms: an abandoned transaction is aborted by then."""
CALL_S = 5.0
GIVE_UP_S = 40.0
OFFSETS_S = TIMEOUT_MS / 1000 + CALL_S
HUNG = "send_offsets_to_transaction did not return"
PAUSE_S = 0.05
HIJACKED_AFTER_S = 6.0
"""The latest time of a hijack, so that each id has a second owner even on a slow cluster."""
DRAIN_S = 60.0
END_S = 2 * GIVE_UP_S + DRAIN_S
"""The time to end a running operation, a zombie's operation, and the remaining copies."""


class Ended(Exception):
    """This instance cannot go on: it is fenced, or its transaction's outcome is unknown."""


class Instance:
    """One producer with a transactional id, and its lines in the history."""

    def __init__(self, recorder: Recorder, process: str, transactional_id: str) -> None:
        self.recorder = recorder
        self.process = process
        self.id = transactional_id
        self.sender = Sender(recorder, process, CLIENT, acks=-1, idempotent=True)
        self.txn = ""
        self._count = 0
        self._producer = Producer(
            {
                **common(recorder.spec, process),
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "message.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
            }
        )

    def _operation(self, f: str, call: Callable[[], Any], **fields: Any) -> None:
        """Makes a call and records it; repeats it while its error says that this is safe."""
        writer = self.recorder.writer
        op = writer.new_id()
        common = {"op": op, "phase": "run", "transactional_id": self.id, **fields}
        writer.write(self.process, CLIENT, f, INVOKE, **common)
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                call()
            except KafkaException as error:
                failed = error.args[0]
                if failed.retriable() and time.monotonic() < deadline:
                    continue
                name = failed.name()
                self.recorder.count(self.process, "unknown", name)
                writer.write(self.process, CLIENT, f, INFO, error=name, **common)
                raise
            writer.write(self.process, CLIENT, f, OK, **common)
            return

    def init(self) -> None:
        self._operation("init_txn", lambda: self._producer.init_transactions(CALL_S))

    def begin(self) -> None:
        self._count += 1
        self.txn = f"{self.recorder.spec.run}|{self.process}|{self._count}"
        self._producer.begin_transaction()

    def send(self, topic: Topic, partition: int, **fields: Any) -> None:
        op, key, value = self.sender.invoke(topic, partition, txn=self.txn, **fields)

        def delivered(error: Any, message: Message) -> None:
            if error is None:
                self.sender.ok(op, offset_of(message))
            else:
                self.sender.error(op, error.name())

        self._producer.produce(
            topic.name, value.encode(), key.encode(), partition, on_delivery=delivered
        )

    def flush(self) -> None:
        if not serve(self._producer.flush, TIMEOUT_MS / 1000):
            raise Ended

    def offsets(self, places: list[TopicPartition], consumer: Consumer) -> None:
        """Adds the offsets to the transaction; raises Ended where the call does not return.

        librdkafka ignores the call's own time-out while it waits for a coordinator that has left
        the cluster (its issues 5456 and 5511).  So the call has a thread of its own, which is
        abandoned once the brokers have aborted the transaction anyway.
        """
        group, failed = consumer.consumer_group_metadata(), list[KafkaException]()

        def call() -> None:
            try:
                self._producer.send_offsets_to_transaction(places, group, GIVE_UP_S)
            except KafkaException as error:
                failed.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(OFFSETS_S)
        if thread.is_alive():
            self.recorder.count(self.process, "unknown", HUNG)
            raise Ended
        if failed:
            raise failed[0]

    def commit(self) -> None:
        self._operation(
            "end_txn",
            lambda: self._producer.commit_transaction(CALL_S),
            txn=self.txn,
            which="commit",
        )

    def abort(self) -> None:
        self._operation(
            "end_txn",
            lambda: self._producer.abort_transaction(CALL_S),
            txn=self.txn,
            which="abort",
        )

    def transact(self, work: Callable[[], bool]) -> bool:
        """Runs a transaction; `work` says whether to commit.  True if committed; raises Ended."""
        try:
            self.begin()
            if work():
                self.commit()
                return True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise Ended from error
        except BufferError as error:
            raise Ended from error
        try:
            self.abort()
        except KafkaException as error:
            raise Ended from error
        return False

    def close(self) -> None:
        serve(self._producer.flush, 0.1)  # a fenced producer may report that again
        self.sender.abandon()


class Ledger:
    """A teller's own reading of the bank under read_committed, from the beginning on."""

    def __init__(self, recorder: Recorder, process: str, topic: Topic) -> None:
        self._reader = Reader(recorder, process, CLIENT)
        self._consumer = Consumer(
            {
                **common(recorder.spec, process),
                "group.id": process,  # never joined: partitions are assigned here
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": COMMITTED,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(topic.name, p, 0) for p in range(topic.partitions)])
        for partition in range(topic.partitions):
            self._reader.assign(topic.name, partition, 0)

    def read(self, txn: str) -> None:
        """Records as read in this transaction the records that can be had without waiting."""
        poll_id = self._reader.poll_invoke()
        messages = [m for m in self._consumer.consume(100, 0.0) if m.error() is None]
        for m in messages:
            place = (str(m.topic()), m.partition() or 0, m.offset() or 0)
            found = (*place, m.key(), m.value())
            self._reader.record(poll_id, len(messages), *found, txn=txn, isolation=COMMITTED)
        self._reader.poll_end(poll_id, len(messages))

    def close(self) -> None:
        self._consumer.close()


class Teller(Client):
    """Runs one instance after the other under one transactional id."""

    def __init__(self, recorder: Recorder, topic: Topic, number: int) -> None:
        super().__init__(recorder, f"teller-{number}")
        self.topic = topic
        self.id = f"{recorder.spec.run}-{self.name}"
        self.random = random.Random(f"{recorder.spec.seed} {self.name}")

    def work(self) -> None:
        ledger = Ledger(self.recorder, f"{self.name}-ledger", self.topic)
        zombies: list[threading.Thread] = []
        number = 0
        while not self.stopping.is_set():
            instance = Instance(self.recorder, f"{self.name}-{number}", self.id)
            number += 1
            try:
                instance.init()
                self._transactions(instance, self.random.randint(2, 10), HIJACKED_AFTER_S, ledger)
            except (Ended, KafkaException):
                instance.close()
                continue
            # the next one takes over while this one goes on
            zombie = threading.Thread(target=self._zombie, args=(instance,), daemon=True)
            zombie.start()
            zombies.append(zombie)
        ledger.close()
        deadline = time.monotonic() + GIVE_UP_S + CALL_S
        for zombie in zombies:
            zombie.join(max(0.1, deadline - time.monotonic()))

    def _zombie(self, instance: Instance) -> None:
        try:
            self._transactions(instance, 1000, float("inf"))
        except (Ended, KafkaException):
            pass
        instance.close()

    def _transactions(
        self, instance: Instance, most: int, seconds: float, ledger: Ledger | None = None
    ) -> None:
        chance = random.Random(f"{self.recorder.spec.seed} {instance.process}")
        ends = time.monotonic() + seconds
        for _ in range(most):
            if self.stopping.is_set() or time.monotonic() > ends:
                return
            instance.transact(lambda: self._transfer(instance, chance, ledger))
            time.sleep(chance.uniform(0, 2 * PAUSE_S))

    def _transfer(self, instance: Instance, chance: random.Random, ledger: Ledger | None) -> bool:
        if ledger is not None:
            ledger.read(instance.txn)
        accounts = chance.sample(range(self.topic.partitions), 2)
        amount = chance.randint(1, 100)
        instance.send(self.topic, accounts[0], amount=-amount)
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, 0.5))
        if ledger is not None:
            ledger.read(instance.txn)
        instance.send(self.topic, accounts[1], amount=amount)
        choice = chance.random()
        if choice < 0.03:
            instance.flush()
            raise Ended  # abandoned: the next instance or the time-out aborts it
        if choice < 0.2:
            instance.flush()
            return False
        return True


class Copier(Client):
    """Reads and writes in one transaction, again and again, until stopped and all is copied."""

    def __init__(self, recorder: Recorder, source: Topic, target: Topic) -> None:
        super().__init__(recorder, "copier")
        self.source = source
        self.target = target
        self.id = f"{recorder.spec.run}-{self.name}"
        self.random = random.Random(f"{recorder.spec.seed} {self.name}")

    def work(self) -> None:
        number = 0
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            if deadline is None and self.stopping.is_set():
                deadline = time.monotonic() + DRAIN_S
            process = f"{self.name}-{number}"
            number += 1
            try:
                if self._instance(process):
                    return
            except (Ended, KafkaException):
                time.sleep(PAUSE_S)

    def _instance(self, process: str) -> bool:
        """Runs one instance; returns True when it was stopped and has copied everything, and raises
        if another one must begin again."""
        instance = Instance(self.recorder, process, self.id)
        consumer = Consumer(
            {
                **common(self.recorder.spec, process),
                "group.id": self.id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": COMMITTED,
                "fetch.wait.max.ms": 100,
            }
        )
        try:
            instance.init()
            positions = self._resume(consumer)
            while True:
                messages = [m for m in consumer.consume(50, 0.2) if m.error() is None]
                if messages:
                    self._copy(instance, consumer, messages, positions)
                elif self.stopping.is_set() and self._done(consumer, positions):
                    return True
        finally:
            instance.close()
            consumer.close()

    def _resume(self, consumer: Consumer) -> dict[int, int]:
        """Goes on from the group's offsets, which no other instance can move any more: this one has
        fenced them all."""
        places = [TopicPartition(self.source.name, p) for p in range(self.source.partitions)]
        found = consumer.committed(places, timeout=GIVE_UP_S)
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        positions = {place.partition: max(place.offset, 0) for place in found}
        consumer.assign(
            [TopicPartition(self.source.name, p, at) for p, at in sorted(positions.items())]
        )
        return positions

    def _copy(
        self,
        instance: Instance,
        consumer: Consumer,
        messages: list[Message],
        positions: dict[int, int],
    ) -> None:
        moved = dict(positions)

        def work() -> bool:
            for message in messages:
                partition, value = message.partition() or 0, message.value() or b""
                moved[partition] = (message.offset() or 0) + 1
                instance.send(
                    self.target, partition % self.target.partitions, copy_of=value.decode()
                )
            places = [TopicPartition(self.source.name, p, at) for p, at in moved.items()]
            instance.offsets(places, consumer)
            if self.random.random() < 0.02:
                raise Ended  # a crash
            return self.random.random() >= 0.05

        if not instance.transact(work):
            raise Ended  # the next instance reads the same records again
        positions |= moved

    def _done(self, consumer: Consumer, positions: dict[int, int]) -> bool:
        for partition, at in positions.items():
            place = TopicPartition(self.source.name, partition)
            if at < consumer.get_watermark_offsets(place, timeout=CALL_S)[1]:
                return False
        return True
