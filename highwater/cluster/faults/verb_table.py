"""The verbs, one row each.

The checks of schedules, the options of `highwater fault`, the control API's description, what a
cluster lacks, and the tables on the pages are made from the rows.  A test compares the methods of
the fixture `chaos` with them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from highwater.cluster.faults import (
    error_verb,
    host_verbs,
    link_quality,
    log_verbs,
    scene,
    verbs,
    workload_verbs,
)
from highwater.cluster.faults.scene import OTHERS, Scene
from highwater.cluster.faults.verb_row import Field, Kind, Target, Verb
from highwater.cluster.hosts import NO_DOOR, NO_LIMITS
from highwater.cluster.interface import (
    BROKER_LINKS,
    CLIENT_MESSAGES,
    DELETE,
    PATIENCE_S,
    SEGMENTS,
    ZOOKEEPER,
)

_PROXIED = "only those between clients and brokers go through a proxy"
_FAR = "its ZooKeeper, if any, is not at hand"
_NO_DELETE = "a quorum's leader has no znode that could be deleted; write how: kill"
_BESIDE: Mapping[Kind, Mapping[str, str]] = {
    Kind.KRAFT: {ZOOKEEPER: "there is no ZooKeeper", DELETE: _NO_DELETE},
    Kind.REMOTE: {
        ZOOKEEPER: _FAR,
        DELETE: _NO_DELETE,
        BROKER_LINKS: _PROXIED,
        SEGMENTS: "the brokers' disks are not at hand",
    },
    Kind.TLS: {CLIENT_MESSAGES: "clients come over TLS, where no message can be seen"},
}
"""What a kind of cluster lacks in addition to verbs."""

_NOT_OURS = {Kind.FOREIGN: "only Highwater's own brokers can do it when they are asked"}
_MEMBER = Target("a member", Scene.member)
_BROKER = Target("a broker", Scene.a_broker)
_PARTITION = Target("a partition", Scene.partition)
_TOPIC = Target("a topic or a partition", Scene.topic_or_partition)
_END = Target("a member as `from`", Scene.target, required=False)

_FROM = Field("from", "where the messages come from", Scene.target)
_TO = Field("to", "where they go to", Scene.target)
_ONE_WAY = Field("one_way", "in this direction only", scene.is_flag, bool)
_ENDS = (_FROM, replace(_TO, check=Scene.sink, default=OTHERS), _ONE_WAY)
_LATENCY = Field("latency", "how much longer it takes", scene.is_number, float, "ms", required=True)
_API = "Fetch, Produce, EndTxn, ...; setData, ... to zookeeper"
_RULE = (
    Field("api", _API, scene.is_api, required=True),
    Field("side", "request or response", choices=("request", "response"), default="request"),
    _FROM,
    _TO,
    Field("path", "a pattern of the znode's path", scene.is_pattern),
    Field("count", "how many messages; 0: all", scene.is_count, int, default=1),
)
_SIDE, _COUNT = _RULE[1], _RULE[-1]
_ANSWER = (
    Field("api", "an API of Kafka's, as Produce or OffsetCommit", scene.is_kafka_api,
          required=True),
    Field("error", "Kafka's name of an error, as NOT_LEADER_OR_FOLLOWER", scene.is_error,
          required=True),
    Field("topic", "only in answers about this topic", scene.is_topic),
    Field("partition", "only in answers about the partition of this number",
          scene.is_whole_number, int),
    Field("client", "a pattern of the client id", scene.is_pattern),
    _SIDE, _FROM, _TO, _COUNT,
    Field("every", "each n-th of the messages that it could answer", scene.is_step, int, default=1),
    Field("probability", "how likely each is answered", scene.is_probability, float, default=1.0),
    Field("throttle_ms", "the answer asks the client to wait", scene.is_whole_number, int, "ms"),
)  # fmt: skip
_LEAD = (
    Field("not", "who is not to lead", Scene.target),
    Field("leader", "the broker that is to lead", scene.is_leader, int),
)
_RATE = Field("rate", "the acks=1 load", scene.is_number, float, "records/s", default=300)
_SECONDS = Field("seconds", "how long", scene.is_number, float, "s", default=1)

GROUPS: Mapping[str, tuple[Verb, ...]] = {
    "processes": (
        Verb("kill", verbs.kill, "SIGKILL; the end starts it again on the same port and data",
             "the process is gone", target=_MEMBER, lasts=True, commands=("kill",)),
        Verb("stop", verbs.stop, "SIGTERM, a controlled shutdown; the end starts it",
             "the process is gone, with its exit code",
             target=_MEMBER, lasts=True, commands=("stop",)),
        Verb("start", verbs.start, "starts it on the same port and data", "it serves",
             target=_MEMBER, commands=("start",)),
        Verb("restart", verbs.restart, "`stop` or `kill`, then `start`",
             "the process is gone; it serves", target=_MEMBER, commands=("kill", "start"),
             fields=(Field("how", "kill or stop", choices=("kill", "stop"), default="stop"),)),
        Verb("pause", verbs.pause, "SIGSTOP: alive, and silent; the end resumes it",
             "the process stands still", target=_MEMBER, lasts=True, by_links=True,
             commands=("pause", "resume")),
        Verb("resume", verbs.resume, "SIGCONT", "the process runs",
             target=_MEMBER, commands=("resume",)),
        Verb("stand_still", verbs.stand_still, "pauses all of them and the clients' processes at "
             "once, as when the host stops a virtual machine",
             "every process stands still; at the end: runs",
             lasts=True, by_links=True, commands=("pause", "resume")),
        Verb("kill_all", verbs.kill_all, "kills every broker at the same moment; the end starts "
             "them", "the processes are gone", lasts=True, commands=("kill", "start")),
        Verb("start_all", verbs.start_all, "starts every member that a fault took away",
             "they serve", commands=("start",)),
    ),
    "links": (
        Verb("cut", verbs.cut, "no bytes between `from` and `to`; the end heals the link",
             "how many streams and attempts it stopped",
             target=_END, fields=_ENDS, check=scene.check_ends, lasts=True, by_links=True),
        Verb("isolate", verbs.isolate, "cuts a broker off from all others, from ZooKeeper and "
             "from controllers apart; clients still reach it", "as `cut`",
             target=_BROKER, lasts=True, by_links=True, cannot={Kind.REMOTE: _PROXIED}),
        Verb("heal", verbs.heal, "opens every link that is cut", "the links are open"),
        Verb("latency", link_quality.latency, "delays what goes between `from` and `to`",
             "how many pieces it delayed", target=_END, check=scene.check_ends, lasts=True,
             by_links=True, fields=(
                 *_ENDS, _LATENCY,
                 Field("jitter", "give or take so much", scene.is_number, float, "ms",
                       default=0))),
        Verb("bandwidth", link_quality.bandwidth, "lets only so much go between `from` and `to`",
             "how many pieces it slowed down", target=_END, check=scene.check_ends, lasts=True,
             by_links=True, fields=(
                 *_ENDS,
                 Field("rate", "at most so much, on each connection", scene.is_above_zero, float,
                       "KiB/s", required=True))),
        Verb("reset_peer", link_quality.reset_peer,
             "resets the connections between `from` and `to` (RST) at both ends, once",
             "how many they were", target=_END, fields=_ENDS, check=scene.check_ends,
             by_links=True),
    ),
    "disks and clocks": (
        Verb("disk_full", host_verbs.disk_full, "the broker's process can write nothing more to "
             "any file, its own output included (Linux, RLIMIT_FSIZE: EFBIG). Its log directory "
             "fails, and as it has no other, it halts, as Kafka's does. The end, or `start`, "
             "brings it back with room", "it has ended, with its exit code",
             target=_BROKER, lasts=True, cannot={
                 Kind.ELSEWHERE: "the brokers are no processes of this harness, whose limits it "
                 "could lower", Kind.NOT_LINUX: NO_LIMITS}),
        Verb("slow_disk", host_verbs.slow_disk, "each of a broker's writes, flushes and loads "
             "takes longer; a write holds up its loop", "how many it slowed down", target=_BROKER,
             fields=(replace(_LATENCY, check=scene.is_longer),), lasts=True,
             cannot={Kind.DOORLESS: NO_DOOR}),
        Verb("clock_jump", host_verbs.clock_jump, "a broker's wall clock is off until the fault "
             "ends; monotonic time is unaffected", "how often the wrong time was read",
             target=_BROKER, lasts=True, cannot={Kind.DOORLESS: NO_DOOR},
             fields=(Field("by", "how far off, below 0 for back", scene.is_seconds_off, float,
                           "s", required=True),)),
    ),
    "messages": (
        Verb("hold", verbs.hold, "holds requests or responses of one API back on the way `from` "
             "`to`; with `to` zookeeper those of one ZooKeeper operation (`setData`, `multi`, …). "
             "The end lets them go", "how many messages were held",
             fields=_RULE, check=scene.check_plane, lasts=True, by_links=True, makes_rule=True),
        Verb("drop", verbs.drop, "as `hold`, but the messages never arrive",
             "how many messages were dropped",
             fields=_RULE, check=scene.check_plane, lasts=True, by_links=True, makes_rule=True),
        Verb("answer", error_verb.answer, "the proxy answers clients with an error, and the broker "
             "is not asked; with `side` response it puts the error into the broker's answer "
             "([more](#errors-that-your-code-has-never-seen))",
             "how many messages it answered, by client id",
             fields=_ANSWER, check=scene.check_answer, lasts=True, by_links=True),
        Verb("release", verbs.release, "lets the messages go that are held, all or those of one "
             "`rule`", "how many messages were released",
             fields=(Field("rule", "the hold or drop that has this name by `as`", scene.is_rule),
                     Field("arrive", "at least one message must go on: a connection that ended "
                           "meanwhile has taken its own along", scene.is_flag, bool))),
    ),
    "leaders and controllers": (
        Verb("swap_leader", verbs.swap_leader, "a reassignment to another order, then a preferred "
             "election", "another leader in ZooKeeper", target=_PARTITION, fields=_LEAD),
        Verb("preferred_election", verbs.preferred_election, "ElectLeaders: the first "
             "replica leads", "another leader in ZooKeeper", target=_PARTITION),
        Verb("move_controller", verbs.move_controller, "deletes the controller's znode, or kills "
             "the controller (the end starts it)", "another controller and a later epoch",
             target=replace(_BROKER, required=False), check=scene.check_deposal, lasts=True,
             fields=(Field("how", "delete or kill", choices=("delete", "kill"), default="delete"),),
             mended_at_once=True, cannot={
                 Kind.REMOTE: "the controller moves as the cluster wants; kill it by its role"}),
        Verb("expire_session", verbs.expire_session, "ends a broker's ZooKeeper session while the "
             "broker lives", "its znode is gone", target=_BROKER, cannot={
                 Kind.KRAFT: "there is no ZooKeeper, and no session in it", Kind.REMOTE: _FAR}),
    ),
    "logs": (
        Verb("roll", log_verbs.roll, "each replica of the topic begins a new segment",
             "how many began", target=_TOPIC, cannot=_NOT_OURS),
        Verb("retain", log_verbs.retain, "deletes the segments that are due by the topic's "
             "retention, now", "how many went", target=_TOPIC, cannot=_NOT_OURS),
        Verb("compact", log_verbs.compact, "begins a new segment and compacts all that may be, "
             "however little of it is dirty", "how many bytes went",
             target=_TOPIC, cannot=_NOT_OURS),
    ),
    "in schedules alone": (
        Verb("wait", verbs.wait, "waits for a state of the cluster, or for a time", "that",
             only="schedules", fields=(
                 Field("until", "healthy, isr of TP is N, leader of TP is $L, leader of TP is not "
                       "$L", Scene.until),
                 Field("within", "how long at most", scene.is_number, float, "s",
                       default=PATIENCE_S),
                 replace(_SECONDS, meaning="how long, without `until`"))),
        Verb("bind", verbs.bind, "gives a name (`as`) to the member that has a role now",
             only="schedules", target=Target("a role", Scene.target)),
        Verb("burst", workload_verbs.burst, "a faster workload for a while",
             "records are acknowledged", only="runs", fields=(_RATE, _SECONDS)),
        Verb("lose_unreplicated", workload_verbs.lose_unreplicated, "both followers are cut off, "
             "acks=1 is written, the leader dies; tried again where the leadership moved "
             "meanwhile", "the acknowledged records are on it alone", only="runs", by_links=True,
             fields=(_RATE, replace(_SECONDS, default=0.8)),
             commands=("kill", "start", "pause", "resume")),
    ),
}  # fmt: skip
"""The verbs by the headings under which pages list them."""
VERBS: dict[str, Verb] = {row.name: row for rows in GROUPS.values() for row in rows}
SCHEDULED = {name: row for name, row in VERBS.items() if row.only != "runs"}
"""The verbs that a schedule can use without the workload of a run."""
FAULTS = {name: row for name, row in VERBS.items() if not row.only}
"""The verbs that a caller can use one at a time, without a schedule."""
IN_CONTAINERS = (Kind.DOORLESS, Kind.ELSEWHERE)


def lacks(*kinds: Kind) -> dict[str, str]:
    """What clusters of all these kinds cannot suffer or show, with the reason: `Cluster.lacks`."""
    here = {*kinds, *[Kind.NOT_LINUX] * (sys.platform != "linux")}
    found = {n: why for n, row in VERBS.items() for k, why in row.cannot.items() if k in here}
    return found | {n: why for k in kinds for n, why in _BESIDE.get(k, {}).items()}


def fields_of(verbs: Mapping[str, Verb]) -> dict[str, dict[Field, list[str]]]:
    """Name -> the fields of that name -> the verbs that have them."""
    found: dict[str, dict[Field, list[str]]] = {}
    for row in verbs.values():
        for field in row.fields:
            found.setdefault(field.name, {}).setdefault(field, []).append(row.name)
    return found
