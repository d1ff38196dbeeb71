"""The names that a schedule can use, and the checks of targets and values against them.

A schedule that names an impossible broker, partition, API or earlier fault would otherwise cost a
whole run, and end as a fault without a visible effect.  Only the run can tell whether a role is
filled when the fault fires (`controller`, `leader of safe-0`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.targets import COORDINATOR, NUMBER, OF, OTHER_THAN, ROLES
from highwater.cluster.interface import BROKER_LINKS, CLIENT_MESSAGES, DELETE, ZOOKEEPER, broker
from highwater.cluster.links.link_rules import CLIENTS
from highwater.cluster.links.zkframes import OPERATIONS
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.header import APIS

KAFKA_APIS = frozenset(name for name, _ in APIS.values())
ZOOKEEPER_OPERATIONS = frozenset(OPERATIONS.values())
PARTITIONS_UNASKED = ("Metadata", "DescribeTopicPartitions")
"""APIs whose requests name topics, and whose answers name partitions."""


class Wrong(ScheduleError):
    """A mistake in an entry; whoever knows the entry's place in the file adds it."""


@dataclass(slots=True)
class Scene:
    """The names that a schedule can use: of the cluster, the topics, and earlier entries."""

    brokers: Sequence[int]
    topics: Mapping[str, int]
    """Topic -> partitions."""
    labels: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    """Labels of entries that hold or drop messages: `release` can name them."""
    controllers: Sequence[str] = ()
    """The members that are controllers in processes of their own."""
    apps: Sequence[str] = ()
    """The copies of the application under test."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What this cluster cannot have, with the reason: `Cluster.lacks`."""

    def members(self) -> list[str]:
        own = [*[ZOOKEEPER] * (ZOOKEEPER not in self.lacks), CLIENTS]
        return [*own, *(broker(n) for n in self.brokers), *self.controllers, *self.apps]

    def _others(self) -> list[str]:
        return [*self.apps, *[ANY_COPY] * bool(self.apps), *self.controllers]

    def partition(self, text: str) -> None:
        topic, _, number = text.rpartition("-")
        if topic not in self.topics or not number.isdigit() or int(number) >= self.topics[topic]:
            known = ", ".join(
                f"{t}-0" if n == 1 else f"{t}-0 to {t}-{n - 1}" for t, n in self.topics.items()
            )
            raise Wrong(f"no partition {text!r}; there are {known}")

    def topic_or_partition(self, text: str) -> None:
        if text in self.topics:
            return
        try:
            self.partition(text)
        except Wrong:
            known = ", ".join(self.topics) or "none"
            raise Wrong(f"no topic or partition {text!r}; there are the topics {known}") from None

    def target(self, value: Any, others: bool = False) -> None:
        """Checks that the target is a possible member or role."""
        text = str(value).strip()
        lower = text.lower()
        if lower in self.lacks:
            raise Wrong(f"no target {text!r}: {self.lacks[lower]}")
        if text.startswith("$"):
            if text[1:] not in self.labels:
                raise Wrong(f"no earlier fault is called {text[1:]!r}; {_known(self.labels)}")
        elif number := NUMBER.match(lower):
            if int(number.group(1)) not in self.brokers:
                raise Wrong(f"no member {text!r}; there are {', '.join(self.members())}")
        elif match := OF.match(text):
            self.partition(f"{match.group(2)}-{match.group(3)}")
        elif lower.startswith(OTHER_THAN):
            for part in text[len(OTHER_THAN) :].split(","):
                self.target(part)
        elif COORDINATOR.match(text) or lower in self._others():
            return
        elif lower not in (ZOOKEEPER, CLIENTS, *ROLES) and not (others and lower == OTHERS):
            roles = [f"{role} of TP" for role in ("leader", "follower", "followers")]
            roles.append("coordinator of group G")
            possible = [*self.members(), *ROLES, *roles, "last ISR member of TP", "$NAME"]
            raise Wrong(f"no target {text!r}; there are {', '.join(possible)}")

    def sink(self, value: Any) -> None:
        self.target(value, others=True)

    def member(self, text: str) -> None:
        """Checks that the target is a process of the cluster."""
        if text.strip().lower() == CLIENTS:
            raise Wrong(f"{CLIENTS} are no member that a fault can take away; name a broker")
        if text.lower().startswith("followers of"):
            raise Wrong(f"{text!r} is more than one member; write follower of TP")
        self.target(text)

    def a_broker(self, text: str) -> None:
        if text.strip().lower() in (ZOOKEEPER, *self.controllers, *self.apps):
            raise Wrong(f"{text} is no broker; name one, or a role")
        self.member(text)

    def until(self, value: Any) -> None:
        text = str(value)
        words = text.split()
        if text == "healthy":
            return
        if len(words) == 5 and words[:2] == ["isr", "of"] and words[3] == "is":
            self.partition(words[2])
            if words[4].isdigit():
                return
        if len(words) >= 5 and words[:2] == ["leader", "of"] and words[3] == "is":
            self.partition(words[2])
            self.target(" ".join(words[5 if words[4] == "not" else 4 :]))
            return
        raise Wrong(
            f"until {text!r} is not understood; write healthy, isr of TP is N,"
            " leader of TP is TARGET, leader of TP is not TARGET"
        )


OTHERS = "other brokers"
ANY_COPY = "any copy"
"""A copy of the application to which partitions are assigned."""


def is_flag(scene: Scene, value: Any) -> None:
    if not isinstance(value, bool):
        raise Wrong(f"{value!r} is neither true nor false")


def is_number(scene: Scene, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise Wrong(f"{value!r} is no number of 0 or more")


def is_above_zero(scene: Scene, value: Any) -> None:
    is_number(scene, value)
    if not value:
        raise Wrong("0 would stop everything: write cut")


def is_longer(scene: Scene, value: Any) -> None:
    is_number(scene, value)
    if not value:
        raise Wrong("0 ms longer changes nothing")


def is_seconds_off(scene: Scene, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"{value!r} is no number of seconds, above or below 0")
    if not abs(value) >= 0.001:
        raise Wrong(f"{value!r} s off is not off: write seconds above or below 0")


def is_count(scene: Scene, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Wrong(f"{value!r} is no whole number of 0 or more (0: all of them)")


def is_pattern(scene: Scene, value: Any) -> None:
    try:
        re.compile(str(value))
    except re.error as error:
        raise Wrong(f"{value!r} is no regular expression: {error}") from None


def is_rule(scene: Scene, value: Any) -> None:
    if value not in scene.rules:
        raise Wrong(f"no earlier hold or drop is called {value!r} (by `as`); {_known(scene.rules)}")


def is_kafka_api(scene: Scene, value: Any) -> None:
    if value not in KAFKA_APIS:
        raise Wrong(f"Kafka has no API {value!r}; there are {', '.join(sorted(KAFKA_APIS))}")


def is_api(scene: Scene, value: Any) -> None:
    if value not in KAFKA_APIS | ZOOKEEPER_OPERATIONS:
        raise Wrong(f"no API {value!r}; there are {', '.join(sorted(KAFKA_APIS))}")


def is_error(scene: Scene, value: Any) -> None:
    names = [error.name for error in ErrorCode if error is not ErrorCode.NONE]
    if value not in names:
        near = difflib.get_close_matches(str(value).upper(), names, 3)
        hint = f"write {' or '.join(near)}" if near else "write a name such as REQUEST_TIMED_OUT"
        raise Wrong(f"Kafka has no error {value!r}: {hint}")


def is_topic(scene: Scene, value: Any) -> None:
    if value not in scene.topics:
        raise Wrong(f"no topic {value!r}; there are {', '.join(scene.topics) or 'none'}")


def is_whole_number(scene: Scene, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Wrong(f"{value!r} is no whole number of 0 or more")


def is_step(scene: Scene, value: Any) -> None:
    is_whole_number(scene, value)
    if not value:
        raise Wrong("0 would answer nothing: write 1 for each message")


def is_probability(scene: Scene, value: Any) -> None:
    is_number(scene, value)
    if not 0 < value <= 1:
        raise Wrong(f"{value!r} is not above 0 and at most 1")


def _known(names: Sequence[str]) -> str:
    return f"there are {', '.join(names)}" if names else "none has a name before it"


def is_leader(scene: Scene, value: Any) -> None:
    if value not in scene.brokers:
        raise Wrong(f"no broker {value!r}; there are {', '.join(map(str, scene.brokers))}")


# --- checks of an entry as a whole, with its defaults


def check_plane(scene: Scene, fault: Fault) -> None:
    """Checks the plane: ZooKeeper's operations go to ZooKeeper and back, Kafka's APIs never."""
    api = fault.params["api"]
    ends = {str(fault.params.get(k, "")).strip().lower() for k in ("from", "to")}
    _check_clients(scene, ends)
    if "from" in fault.params and "to" in fault.params:
        _check_links(scene, list(ends))
    if ZOOKEEPER in scene.lacks and api not in KAFKA_APIS:
        raise Wrong(f"api: {api!r} is ZooKeeper's, and {scene.lacks[ZOOKEEPER]}")
    if ZOOKEEPER in ends and api not in ZOOKEEPER_OPERATIONS:
        operations = ", ".join(sorted(ZOOKEEPER_OPERATIONS))
        raise Wrong(f"api: ZooKeeper has no operation {api!r}; there are {operations}")
    if ZOOKEEPER not in ends and "" not in ends and api not in KAFKA_APIS:
        raise Wrong(f"api: {api!r} is ZooKeeper's: write zookeeper as 'to' or 'from'")
    if "path" in fault.params and api not in ZOOKEEPER_OPERATIONS:
        raise Wrong(f"path: {api} has no path: only ZooKeeper's operations have")


def check_answer(scene: Scene, fault: Fault) -> None:
    """Checks that this API's answers can carry an error, for the topic or partition if named."""
    # imported late: it loads the schemas, and the command line needs the table of verbs without
    # them
    from highwater.cluster.links.error_answers import can_carry, names

    params = {"from" if fault.params["side"] == "request" else "to": CLIENTS, **fault.params}
    ends = [str(params.get(end, "")).strip().lower() for end in ("from", "to")]
    _check_clients(scene, ends)
    _check_links(scene, ends)
    if ZOOKEEPER in ends:
        raise Wrong("ZooKeeper's messages cannot be answered: write hold or drop")
    api, key = params["api"], next((k for k, (n, _) in APIS.items() if n == params["api"]), -1)
    if not can_carry(key):
        raise Wrong(f"api: answers to {api!r} cannot be made here")
    for name in ("topic", "partition"):
        if name in params and name not in names(key):
            raise Wrong(f"{name}: an answer to {api} has no error of its own for each {name}")
    if api in PARTITIONS_UNASKED and "partition" in params and params["side"] == "request":
        raise Wrong(f"partition: a request {api} names none: write side: response")


def _check_clients(scene: Scene, ends: Collection[str]) -> None:
    if CLIENTS in ends and CLIENT_MESSAGES in scene.lacks:
        raise Wrong(
            f"{scene.lacks[CLIENT_MESSAGES]}: cut, latency, bandwidth and reset_peer reach them"
        )


def check_ends(scene: Scene, fault: Fault) -> None:
    source, sink = str(fault.params.get("from") or fault.target), str(fault.params["to"])
    if not source:
        raise Wrong("it needs 'from' (or a target)")
    if source.strip().lower() == sink.strip().lower():
        raise Wrong(f"it is between two members, and both are {source!r}")
    _check_links(scene, [source, sink])


def check_deposal(scene: Scene, fault: Fault) -> None:
    if fault.params["how"] == "delete" and DELETE in scene.lacks:
        raise Wrong(f"how: {scene.lacks[DELETE]}")


def _check_links(scene: Scene, ends: Sequence[str]) -> None:
    if BROKER_LINKS in scene.lacks and CLIENTS not in (end.strip().lower() for end in ends):
        raise Wrong(f"write {CLIENTS} as one end: {scene.lacks[BROKER_LINKS]}")
