"""The arguments of each verb: schedules are checked against them before anything starts.

A schedule that names an impossible broker, partition, API or earlier fault would otherwise cost a
whole run, and end as a fault without a visible effect.  Only the run can tell whether a role is
filled when the fault fires (`controller`, `leader of safe-0`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from highwater.cluster.faults.fault_model import Fault, ScheduleError
from highwater.cluster.faults.targets import COORDINATOR, NUMBER, OF, OTHER_THAN, ROLES
from highwater.cluster.interface import BROKER_LINKS, CLIENT_MESSAGES, ZOOKEEPER, broker
from highwater.cluster.links.link_rules import CLIENTS
from highwater.cluster.links.zkframes import OPERATIONS
from highwater.kafka.wire.header import APIS

KAFKA_APIS = frozenset(name for name, _ in APIS.values())
ZOOKEEPER_OPERATIONS = frozenset(OPERATIONS.values())


class _Wrong(ScheduleError):
    """The mistake in one value, without its place."""


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
    """Those in processes of their own."""
    apps: Sequence[str] = ()
    """The copies of the application under test."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """The faults that this cluster cannot have, with the reason: `Cluster.lacks`."""

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
            raise _Wrong(f"no partition {text!r}; there are {known}")

    def target(self, text: str, others: bool = False) -> None:
        """Checks that the target is a possible member or role."""
        text = text.strip()
        lower = text.lower()
        if lower in self.lacks:
            raise _Wrong(f"no target {text!r}: {self.lacks[lower]}")
        if text.startswith("$"):
            if text[1:] not in self.labels:
                raise _Wrong(f"no earlier fault is called {text[1:]!r}; {_known(self.labels)}")
        elif number := NUMBER.match(lower):
            if int(number.group(1)) not in self.brokers:
                raise _Wrong(f"no member {text!r}; there are {', '.join(self.members())}")
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
            raise _Wrong(f"no target {text!r}; there are {', '.join(possible)}")

    def member(self, text: str) -> None:
        """Checks that the target is a process of the cluster."""
        if text.strip().lower() == CLIENTS:
            raise _Wrong(f"{CLIENTS} are no member that a fault can take away; name a broker")
        if text.lower().startswith("followers of"):
            raise _Wrong(f"{text!r} is more than one member; write follower of TP")
        self.target(text)

    def a_broker(self, text: str) -> None:
        if text.strip().lower() in (ZOOKEEPER, *self.controllers, *self.apps):
            raise _Wrong(f"{text} is no broker; name one, or a role")
        self.member(text)

    def until(self, text: str) -> None:
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
        raise _Wrong(
            f"until {text!r} is not understood; write healthy, isr of TP is N,"
            " leader of TP is TARGET, leader of TP is not TARGET"
        )


OTHERS = "other brokers"
ANY_COPY = "any copy"
"""One of the application's that has partitions."""
Check = Callable[[Scene, Any], None]


def one_of(*words: str) -> Check:
    def check(scene: Scene, value: Any) -> None:
        if value not in words:
            raise _Wrong(f"{value!r} is none of {', '.join(words)}")

    return check


def _flag(scene: Scene, value: Any) -> None:
    if not isinstance(value, bool):
        raise _Wrong(f"{value!r} is neither true nor false")


def is_number(scene: Scene, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise _Wrong(f"{value!r} is no number of 0 or more")


def _above_zero(scene: Scene, value: Any) -> None:
    is_number(scene, value)
    if not value:
        raise _Wrong("0 would stop everything: write cut")


def _longer(scene: Scene, value: Any) -> None:
    is_number(scene, value)
    if not value:
        raise _Wrong("0 ms longer changes nothing")


def _seconds_off(scene: Scene, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(f"{value!r} is no number of seconds, above or below 0")
    if not abs(value) >= 0.001:
        raise _Wrong(f"{value!r} s off is not off: write seconds above or below 0")


def _count(scene: Scene, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _Wrong(f"{value!r} is no whole number of 0 or more (0: all of them)")


def _pattern(scene: Scene, value: Any) -> None:
    try:
        re.compile(str(value))
    except re.error as error:
        raise _Wrong(f"{value!r} is no regular expression: {error}") from None


def _rule(scene: Scene, value: Any) -> None:
    if value not in scene.rules:
        raise _Wrong(
            f"no earlier hold or drop is called {value!r} (by `as`); {_known(scene.rules)}"
        )


def _api(scene: Scene, value: Any) -> None:
    if value not in KAFKA_APIS | ZOOKEEPER_OPERATIONS:
        raise _Wrong(f"no API {value!r}; there are {', '.join(sorted(KAFKA_APIS))}")


def _known(names: Sequence[str]) -> str:
    return f"there are {', '.join(names)}" if names else "none has a name before it"


def _leader(scene: Scene, value: Any) -> None:
    if value not in scene.brokers:
        raise _Wrong(f"no broker {value!r}; there are {', '.join(map(str, scene.brokers))}")


def _target(scene: Scene, value: Any) -> None:
    scene.target(str(value))


def _sink(scene: Scene, value: Any) -> None:
    scene.target(str(value), others=True)


@dataclass(frozen=True, slots=True)
class Form:
    """The arguments of one verb."""

    target: Callable[[Scene, str], None] | None = None
    """The check of a target; None: the verb takes none."""
    must: tuple[str, ...] = ()
    """Fields that have no default; "target" may be one."""
    fields: Mapping[str, Check] = field(default_factory=dict)
    lasts: bool = False
    """Whether `for` has a meaning, because something ends the fault."""


_ENDS: Mapping[str, Check] = {"from": _target, "to": _sink, "one_way": _flag}
_PARTITION = Form(Scene.partition, ("target",), {"not": _target, "leader": _leader})
_RULE = Form(
    None,
    ("api",),
    {
        "api": _api,
        "side": one_of("request", "response"),
        "from": _target,
        "to": _target,
        "path": _pattern,
        "count": _count,
    },
    lasts=True,
)
FORMS: dict[str, Form] = {
    "kill": Form(Scene.member, ("target",), lasts=True),
    "stop": Form(Scene.member, ("target",), lasts=True),
    "start": Form(Scene.member, ("target",)),
    "restart": Form(Scene.member, ("target",), {"how": one_of("kill", "stop")}),
    "pause": Form(Scene.member, ("target",), lasts=True),
    "resume": Form(Scene.member, ("target",)),
    "stand_still": Form(lasts=True),
    "kill_all": Form(lasts=True),
    "start_all": Form(),
    "cut": Form(Scene.target, (), _ENDS, lasts=True),
    "latency": Form(
        Scene.target, ("latency",), {**_ENDS, "latency": is_number, "jitter": is_number}, lasts=True
    ),
    "bandwidth": Form(Scene.target, ("rate",), {**_ENDS, "rate": _above_zero}, lasts=True),
    "reset_peer": Form(Scene.target, (), _ENDS),
    "disk_full": Form(Scene.a_broker, ("target",), lasts=True),
    "slow_disk": Form(Scene.a_broker, ("target", "latency"), {"latency": _longer}, lasts=True),
    "clock_jump": Form(Scene.a_broker, ("target", "by"), {"by": _seconds_off}, lasts=True),
    "isolate": Form(Scene.a_broker, ("target",), lasts=True),
    "heal": Form(),
    "hold": _RULE,
    "drop": _RULE,
    "release": Form(None, (), {"rule": _rule, "arrive": _flag}),
    "swap_leader": _PARTITION,
    "preferred_election": _PARTITION,
    "move_controller": Form(Scene.a_broker, (), {"how": one_of("delete", "kill")}, lasts=True),
    "expire_session": Form(Scene.a_broker, ("target",)),
    "wait": Form(
        None, (), {"until": lambda s, v: s.until(str(v)), "within": is_number, "seconds": is_number}
    ),
    "bind": Form(Scene.target, ("target",)),
}


def check(schedule: Sequence[Fault], scene: Scene, forms: Mapping[str, Form] = FORMS) -> None:
    """Raises ScheduleError at the first entry that makes no sense in this scene."""
    for number, fault in enumerate(schedule, 1):
        place = fault.place or f"fault {number}"
        try:
            check_one(fault, scene, forms)
        except _Wrong as wrong:
            raise ScheduleError(f"{place} ({fault.name}): {wrong}") from None
        if fault.label:
            scene.labels.append(fault.label)
            if fault.name in ("hold", "drop"):
                scene.rules.append(fault.label)


def check_one(fault: Fault, scene: Scene, forms: Mapping[str, Form] = FORMS) -> None:
    """Raises ScheduleError, without a place, where this entry makes no sense in this scene."""
    form = forms[fault.name]
    if fault.name in scene.lacks:
        raise _Wrong(f"it cannot be done here: {scene.lacks[fault.name]}")
    given = {**fault.params, **({"target": fault.target} if fault.target else {})}
    for name in form.must:
        if name not in given:
            raise _Wrong(f"it needs {name!r}")
    if fault.lasts is not None and not form.lasts:
        raise _Wrong("it does not last: leave out 'for'")
    if fault.target:
        if form.target is None:
            raise _Wrong(f"it takes no target: leave out {fault.target!r}")
        form.target(scene, fault.target)
    for name, value in fault.params.items():
        if name not in form.fields:
            known = ", ".join(form.fields) or "no fields of its own"
            raise _Wrong(f"it has no field {name!r}; it takes {known}")
        try:
            form.fields[name](scene, value)
        except _Wrong as wrong:
            raise _Wrong(f"{name}: {wrong}") from None
    deposes = fault.name == "move_controller" and fault.params.get("how", "delete") == "delete"
    if deposes and "delete" in scene.lacks:
        raise _Wrong(f"how: {scene.lacks['delete']}")
    if fault.name in ("hold", "drop"):
        _check_plane(fault, scene)
    if form.fields.keys() >= _ENDS.keys():
        _check_ends(fault, scene)


def _check_plane(fault: Fault, scene: Scene) -> None:
    """Checks the plane: ZooKeeper's operations go to ZooKeeper and back, Kafka's APIs never."""
    api = fault.params["api"]
    ends = {str(fault.params.get(k, "")).strip().lower() for k in ("from", "to")}
    if CLIENTS in ends and CLIENT_MESSAGES in scene.lacks:
        raise _Wrong(
            f"{scene.lacks[CLIENT_MESSAGES]}: cut, latency, bandwidth and reset_peer reach them"
        )
    if "from" in fault.params and "to" in fault.params:
        _check_links(list(ends), scene)
    if ZOOKEEPER in scene.lacks and api not in KAFKA_APIS:
        raise _Wrong(f"api: {api!r} is ZooKeeper's, and {scene.lacks[ZOOKEEPER]}")
    if ZOOKEEPER in ends and api not in ZOOKEEPER_OPERATIONS:
        operations = ", ".join(sorted(ZOOKEEPER_OPERATIONS))
        raise _Wrong(f"api: ZooKeeper has no operation {api!r}; there are {operations}")
    if ZOOKEEPER not in ends and "" not in ends and api not in KAFKA_APIS:
        raise _Wrong(f"api: {api!r} is ZooKeeper's: write zookeeper as 'to' or 'from'")
    if "path" in fault.params and api not in ZOOKEEPER_OPERATIONS:
        raise _Wrong(f"path: {api} has no path: only ZooKeeper's operations have")


def _check_ends(fault: Fault, scene: Scene) -> None:
    source = str(fault.params.get("from") or fault.target)
    if not source:
        raise _Wrong("it needs 'from' (or a target)")
    if source.strip().lower() == str(fault.params.get("to", OTHERS)).strip().lower():
        raise _Wrong(f"it is between two members, and both are {source!r}")
    _check_links([source, str(fault.params.get("to", OTHERS))], scene)


def _check_links(ends: Sequence[str], scene: Scene) -> None:
    if BROKER_LINKS in scene.lacks and CLIENTS not in (end.strip().lower() for end in ends):
        raise _Wrong(f"write {CLIENTS} as one end: {scene.lacks[BROKER_LINKS]}")
