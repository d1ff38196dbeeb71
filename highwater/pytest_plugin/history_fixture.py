"""The fixture `history`: producers and consumers beside a test, and checks of what they saw.

They are processes of the agent, and write down each call and answer.  The checks are those of
docs/rules.md, over everything that was written and read of a topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from highwater.agent.client import ControlError
from highwater.pytest_plugin.errors import Anomaly, Ending, FixtureError, Plainly
from highwater.pytest_plugin.reasons import of_acknowledged, of_processed, of_repeated

if TYPE_CHECKING:
    from highwater.agent.client import Control
    from highwater.pytest_plugin.names import Groups

Library = Literal["confluent-kafka", "kafka-python", "highwater"]
_MOST_BYTES = 500_000
"""The values that go into one request; the agent takes a megabyte."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The records that a check rests on."""

    acknowledged: int
    read: int
    checks: int
    """Rules that had something to examine."""
    folder: Path
    """The history, and its verdict."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The longest time in which a producer waited for an acknowledgement of one partition."""

    longest_s: float
    partition: int
    acknowledged: int
    """Records of the partition."""


class Client(Ending):
    """A producer or consumer at work; `with` ends it."""

    def __init__(self, history: History, name: str, topic: str) -> None:
        self._history = history
        self.name = name
        self.topic = topic
        self.ended = False

    def end(self) -> None:
        """A producer waits for its last acknowledgements."""
        __tracebackhide__ = True
        if not self.ended:
            self.ended = True
            self._history.call("DELETE", f"clients/{self.name}")


class History:
    """See the module's docstring."""

    def __init__(self, control: Control, seed: int, groups: Groups) -> None:
        self._control = control
        self._seed = seed
        self._groups = groups
        self._first_event = len(control.events(0))
        self._id: int | None = None
        self.clients: list[Client] = []
        self.unchecked: dict[str, None] = {}
        """Topics with clients whose history was not looked at, in the order of their begin."""

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A call of the control API about this history, which begins with the first one."""
        if self._id is None:
            with Plainly():
                told = self._control.call("POST", "/v1/history", {"seed": self._seed})
            self._id = int(told["history"])
        with Plainly():
            return self._control.call(method, f"/v1/history/{self._id}/{path}", body)

    def producing(
        self,
        topic: str,
        *,
        rate: float = 100.0,
        client: Library = "confluent-kafka",
        acks: Literal["all", 1] = "all",
    ) -> Client:
        """Sends `rate` records a second, over all partitions in turn, until its end."""
        __tracebackhide__ = True
        return self._begin("produce", topic, client, rate, -1 if acks == "all" else acks)

    def consuming(self, topic: str, *, client: Library = "confluent-kafka") -> Client:
        """Reads all partitions from their start, until its end."""
        __tracebackhide__ = True
        return self._begin("consume", topic, client, 0.0, -1)

    def _begin(self, does: str, topic: str, library: str, rate: float, acks: int) -> Client:
        __tracebackhide__ = True
        client = {"does": does, "topic": topic, "client": library, "rate": rate, "acks": acks}
        told = self.call("POST", "clients", client)
        self.unchecked[topic] = None
        self.clients.append(Client(self, told["name"], topic))
        return self.clients[-1]

    def unavailable(self, topic: str, partition: int | None = None) -> Unavailable:
        """The longest wait for an acknowledgement in the partition; None: in the worst one.

        Raises FixtureError where nothing was acknowledged, or nothing sent to the partition.
        """
        __tracebackhide__ = True
        told = self.call("GET", f"gaps/{topic}")
        wanted = told["partition"] if partition is None else partition
        for gap in told["partitions"]:
            if gap["partition"] == wanted:
                return Unavailable(gap["longest_s"], wanted, gap["acknowledged"])
        raise FixtureError(f"nothing was sent to {topic}-{wanted} in this history")

    def check(
        self,
        topic: str,
        *,
        acknowledged: Iterable[str | bytes] = (),
        processed: Iterable[str | bytes] | None = None,
        exactly_once: bool = False,
        within_s: float = 60.0,
    ) -> Checked:
        """Ends the clients on the topic, reads it from start to end, and checks everything.

        Of the application's records, equal values count as one:

        * `acknowledged`: values that were acknowledged to it; each has to be in the topic.
        * `processed`: values that it took from the topic and worked on; every acknowledged record
          has to be among them, and with `exactly_once` only once (equal values as often as the
          topic has them), in the order of its partition.

        Raises Anomaly with the story of the first violation, and FixtureError where the topic was
        not read to its end, or nothing was acknowledged: such a check would prove nothing.
        """
        __tracebackhide__ = True
        self.unchecked.pop(topic, None)
        for client in self.clients:
            if client.topic == topic:
                client.end()
        for does, values in (("acknowledged", acknowledged), ("processed", processed)):
            for some in _portions(values or ()):
                self.call("POST", "claims", {"does": does, "topic": topic, "values": some})
        asked = {"topic": topic, "within": within_s, "exactly_once": exactly_once}
        told = self.call("POST", "check", {**asked, "processed": processed is not None})
        if told["story"]:
            below = [*self._why(topic, told), *told["further"]]
            raise Anomaly("\n".join([told["story"], *(f"  {line}" for line in below)]))
        return Checked(told["acknowledged"], told["read"], told["checks"], Path(told["folder"]))

    def _why(self, topic: str, told: dict[str, Any]) -> list[str]:
        """The cluster's events about the violation; nothing where it does not answer."""
        try:
            events = self._control.events(self._first_event)
            if found := told["missed"] or told["repeated"]:
                place, groups = f"{topic}-{found['partition']}", map(self._group, self._groups.made)
                if told["missed"]:
                    return of_processed(place, found["offset"], groups)
                texts = [f"{event['at'][11:23]} {event['text']}" for event in events]
                return of_repeated(place, texts, groups)
            return of_acknowledged(topic, [event["text"] for event in events])
        except ControlError:
            return []

    def _group(self, name: str) -> dict[str, Any]:
        try:
            return self._control.call("GET", f"/v1/groups/{name}")
        except ControlError as error:
            if error.kind != "not_found":  # no member joined it
                raise
            return {"group": name, "committed": {}}

    def first_anomaly(self) -> str:
        """The first anomaly in topics that the test did not check, for its report."""
        told = ""
        for topic in list(self.unchecked):
            try:
                checked = self.check(topic, within_s=15)
            except (Anomaly, FixtureError) as error:
                return f"history of {topic}: {error}"
            counts = f"{checked.acknowledged} records acknowledged, {checked.read} read"
            told = told or f"history of {topic}: no anomaly, {counts}"
        return told

    def close(self) -> None:
        if self._id is not None:
            self._control.call("DELETE", f"/v1/history/{self._id}")
            self._id = None


def _portions(values: Iterable[str | bytes]) -> Iterator[list[str]]:
    """As text, in lists of bounded size."""
    some: list[str] = []
    size = 0
    for value in values:
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        size += len(json.dumps(text)) + 2
        if some and size > _MOST_BYTES:
            yield some
            some, size = [], len(json.dumps(text)) + 2
        some.append(text)
    if some:
        yield some
