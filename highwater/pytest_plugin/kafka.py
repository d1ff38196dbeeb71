"""The fixture `kafka`: a cluster's addresses, questions about it, and waits."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from highwater.pytest_plugin.errors import FixtureError, Plainly

if TYPE_CHECKING:
    from highwater.agent.client import Control
    from highwater.pytest_plugin.app_fixture import App
    from highwater.pytest_plugin.chaos_fixture import Chaos, Fault
    from highwater.pytest_plugin.fixture_settings import Settings

Library = Literal["librdkafka", "kafka-python", "java", "aiokafka"]
User = Literal["admin", "alice", "bob"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
WITHIN_S = 30.0


class Kafka:
    """A running cluster, shared with other tests of the same settings, and whole when a test
    begins."""

    def __init__(self, control: Control, folder: Path, settings: Settings, seed: str) -> None:
        self._control = control
        self.folder = folder
        """Data, properties and output of every member."""
        self.runtime = settings.runtime
        """process, compose, apache or apache:VERSION."""
        self.security = settings.security
        """plaintext, ssl, sasl_plaintext or sasl_ssl: what clients' connections speak."""
        self.random = random.Random(seed)
        """For choices that --kafka-seed brings back."""
        self.wait = Waits(control)
        status = control.status()
        self.bootstrap: str = status["bootstrap"]
        """The bootstrap servers, as HOST:PORT,HOST:PORT."""
        self.brokers: list[int] = status["brokers"]
        self.control: str = control.url
        """The agent's address, for programs in other languages."""
        self.apps: list[App] = []
        """Those of this test."""

    def client_config(
        self,
        library: Library = "librdkafka",
        *,
        user: User = "admin",
        mechanism: Mechanism = "PLAIN",
    ) -> dict[str, Any]:
        """The settings by which this user's clients reach the cluster, the bootstrap servers among
        them, as their library names them.

        `librdkafka` is confluent-kafka's; `java` has the lines of a properties file; those of
        kafka-python and aiokafka are arguments.  admin may do everything; alice and bob what access
        rules allow.  `mechanism` is of SASL alone.  Raises FixtureError.
        """
        __tracebackhide__ = True
        from highwater.cluster.client_files import NoSuchClient, client_settings

        try:
            secure = self.folder / "secure"
            return client_settings(secure, self.bootstrap, self.security, library, user, mechanism)
        except NoSuchClient as error:
            raise FixtureError(str(error)) from None

    def app(self, input: str, output: str, *, match: str, copies: int = 1) -> App:
        """An application that the test starts, so that it can be struck in its window.

        It reads `input` and writes `output`, two topics with JSON values, whose id is at `match`,
        such as $.order_id.  Raises FixtureError.
        """
        __tracebackhide__ = True
        from highwater.pytest_plugin.app_fixture import App

        self.apps.append(App(self._control, input, output, match, copies))
        return self.apps[-1]

    def status(self) -> dict[str, Any]:
        """Members and their states, cuts, faults."""
        with Plainly():
            return self._control.status()

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader's number; -1 for none."""
        __tracebackhide__ = True
        leader: int = self._partition(topic, partition)["leader"]
        return leader

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas that ZooKeeper has; the leader is one of them."""
        __tracebackhide__ = True
        isr: list[int] = self._partition(topic, partition)["isr"]
        return isr

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        __tracebackhide__ = True
        replicas: list[int] = self._partition(topic, partition)["replicas"]
        return replicas

    @property
    def controller(self) -> int:
        """The controller's number; -1 for none."""
        number: int = self.status()["controller"]
        return number

    def any_broker(self) -> int:
        """One that runs, chosen by the seed."""
        members = self.status()["members"]
        up = [n for n in self.brokers if members[f"broker-{n}"]["state"] == "up"]
        return self.random.choice(up or self.brokers)

    def lag(self, group: str) -> int:
        """Records that the group has not committed yet, over all partitions of its topics."""
        __tracebackhide__ = True
        return int(self.group(group)["total_lag"])

    def group(self, name: str) -> dict[str, Any]:
        """State, members, coordinator and lag of a group."""
        __tracebackhide__ = True
        with Plainly():
            return self._control.call("GET", f"/v1/groups/{name}")

    def _partition(self, topic: str, partition: int) -> dict[str, Any]:
        __tracebackhide__ = True
        with Plainly():
            partitions: list[dict[str, Any]] = self._control.topic(str(topic))["partitions"]
        for found in partitions:
            if found["partition"] == partition:
                return found
        raise FixtureError(f"{topic} has no partition {partition}; it has {len(partitions)}")


class Waits:
    """Each returns the seconds that it took, or raises NotInTime with the cluster's state."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.chaos: Chaos | None = None

    def _until(self, text: str, within_s: float) -> float:
        __tracebackhide__ = True
        with Plainly():
            return float(self._control.wait(text, within_s))

    def leader_changed(
        self,
        topic: str,
        partition: int = 0,
        *,
        since: Fault | None = None,
        within_s: float = WITHIN_S,
    ) -> float:
        """Another broker leads than when the fault began (the test's last one where None)."""
        __tracebackhide__ = True
        fault = since or (self.chaos.last if self.chaos is not None else None)
        if fault is None:
            raise FixtureError("leader_changed: since when? No fault began in this test")
        return self._until(f"leader of {topic}-{partition} changed since {fault.id}", within_s)

    def isr_full(self, topic: str, partition: int | None = None, *, within_s: float = 60) -> float:
        """All replicas are in the ISR that ZooKeeper has, of one partition or all.

        The leader counts them a moment later, when its write to ZooKeeper is answered; until then
        it can refuse a write for min.insync.replicas, which a producer with retries does not see.
        """
        __tracebackhide__ = True
        place = topic if partition is None else f"{topic}-{partition}"
        return self._until(f"isr of {place} is full", within_s)

    def isr_is(
        self, size: int, topic: str, partition: int = 0, *, within_s: float = WITHIN_S
    ) -> float:
        """So many replicas are in the ISR that ZooKeeper has."""
        __tracebackhide__ = True
        return self._until(f"isr of {topic}-{partition} is {size}", within_s)

    def group_stable(
        self, group: str, members: int | None = None, *, within_s: float = WITHIN_S
    ) -> float:
        """The group has its assignment, and so many members where a number is given."""
        __tracebackhide__ = True
        number = "" if members is None else f" with {members} members"
        return self._until(f"group {group} is stable{number}", within_s)

    def lag_below(self, group: str, records: int, *, within_s: float = WITHIN_S) -> float:
        """The group has committed all but fewer than this number of records."""
        __tracebackhide__ = True
        return self._until(f"lag of {group} is below {records}", within_s)

    def no_open_transaction(self, *, within_s: float = WITHIN_S) -> float:
        __tracebackhide__ = True
        return self._until("no transaction is open", within_s)

    def healthy(self, *, within_s: float = 60) -> float:
        """Every member runs and none is paused, every partition has its leader and a full ISR."""
        __tracebackhide__ = True
        return self._until("healthy", within_s)
