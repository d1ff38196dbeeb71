"""Requests of administrators: topics, partitions, configs, elections, log directories, ACLs."""

from __future__ import annotations

from typing import Any

from tests.integration.oracle.asking import Case

CREATE, DELETE, GROW, ELECT = 19, 20, 37, 43
DESCRIBE_CONFIGS, ALTER, INCREMENTAL = 32, 33, 44
REASSIGN, REASSIGNMENTS, LOG_DIRS, MOVE = 45, 46, 35, 34
TOPIC, BROKER, LOGGER = 2, 4, 8
NOBODY = "no-such-topic"


def new_topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": p, "broker_ids": ids} for p, ids in more.pop("assigned", {}).items()
        ],
        "configs": [{"name": k, "value": v} for k, v in more.pop("configs", {}).items()],
        **more,
    }


def create(*topics: dict[str, Any], timeout_ms: int = 10_000) -> dict[str, Any]:
    return {"topics": list(topics), "timeout_ms": timeout_ms, "validate_only": False}


def created(name: str, **more: Any) -> dict[str, Any]:
    return create(new_topic(name, **more))


def assigned(name: str, **more: Any) -> dict[str, Any]:
    """A creation that has no live broker to lead the partition is answered soon."""
    return create(new_topic(name, -1, -1, **more), timeout_ms=1000)


def partition_twice(name: str) -> dict[str, Any]:
    (topic,) = assigned(name, assigned={0: [1]})["topics"]
    topic["assignments"].append({"partition_index": 0, "broker_ids": [2]})
    return create(topic, timeout_ms=1000)


def creations() -> list[Case]:
    def case(name: str, body: Any, to: str = "controller") -> Case:
        return Case(name, CREATE, body, to)

    return [
        case("a topic", lambda v, _: created(f"made-{v}", partitions=2, factor=2)),
        case("the same again", lambda v, _: created(f"made-{v}", partitions=2, factor=2)),
        case("only to check", lambda v, _: {**created(f"checked-{v}"), "validate_only": True}),
        case("two at once", lambda v, _: create(new_topic(f"a-{v}"), new_topic(f"b-{v}"))),
        case("one twice", lambda v, _: create(new_topic(f"c-{v}"), new_topic(f"c-{v}"))),
        case("one good, one bad", lambda v, _: create(new_topic(f"d-{v}"), new_topic("e", 0))),
        case("no topics", create()),
        case("not the controller", created("elsewhere"), "other"),
        case("too many replicas", created("wide", factor=3)),
        case("no replicas", created("none", factor=0)),
        case("replicas -2", created("none", factor=-2)),
        case("no partitions", created("none", partitions=0)),
        case("partitions -2", created("none", partitions=-2)),
        Case(
            "default sizes", CREATE, lambda v, _: created(f"default-{v}", partitions=-1, factor=-1),
            "controller", (4, 99),
        ),
        case("no name", created("")),
        case("a name of one dot", created(".")),
        case("a bad name", created("a b")),
        case("a long name", created("x" * 250)),
        case("a name that collides", created("with.dot")),
        case("a name that collides with it", created("with_dot")),
        case("by assignment", lambda v, _: assigned(f"placed-{v}", assigned={0: [2, 1], 1: [1]})),
        case("assignment and partitions", created("both", assigned={0: [1]})),
        case("assignment: unknown broker", assigned("lost", assigned={0: [9]})),
        case("assignment: a broker twice", assigned("twice", assigned={0: [1, 1]})),
        case("assignment: none", assigned("nowhere", assigned={0: []})),
        case("assignment: not from 0", assigned("gap", assigned={1: [1]})),
        case("assignment: a gap", assigned("gap", assigned={0: [1], 2: [1]})),
        case("assignment: negative", assigned("gap", assigned={-1: [1], 0: [1]})),
        case("assignment: -1 alone", assigned("gap", assigned={-1: [1]})),
        case("assignment: a partition twice", lambda v, _: partition_twice(f"twice-{v}")),
        case("assignment: uneven", assigned("uneven", assigned={0: [1, 2], 1: [1]})),
        case(
            "configs",
            lambda v, _: created(
                f"set-{v}", configs={"retention.ms": "5000", "cleanup.policy": "compact,delete"}
            ),
        ),
        case("an unknown config", created("bad", configs={"no.such.config": "1"})),
        case("a bad value", created("bad", configs={"retention.ms": "soon"})),
        case("a value out of range", created("bad", configs={"segment.bytes": "1"})),
        case("a null value", created("bad", configs={"retention.ms": None})),
        case("a list out of range", created("bad", configs={"cleanup.policy": "forget"})),
        case("a broker's config", created("bad", configs={"log.retention.ms": "1"})),
    ]  # fmt: skip


def growth() -> list[Case]:
    def grow(name: str, count: int, *ids: list[int], validate: bool = False) -> dict[str, Any]:
        chosen = [{"broker_ids": i} for i in ids] if ids else None
        topic = {"name": name, "count": count, "assignments": chosen}
        return {"topics": [topic], "timeout_ms": 10_000, "validate_only": validate}

    def case(name: str, body: Any, to: str = "controller") -> Case:
        return Case(name, GROW, body, to)

    def elect(topics: Any, kind: int = 0) -> dict[str, Any]:
        wanted = None
        if topics is not None:
            wanted = [{"topic": t, "partitions": p} for t, p in topics.items()]
        return {"election_type": kind, "topic_partitions": wanted, "timeout_ms": 5000}

    return [
        case("more partitions", lambda v, _: grow(f"made-{v}", 4)),
        case("only to check", lambda v, _: grow(f"made-{v}", 6, validate=True)),
        case("as many", lambda v, _: grow(f"made-{v}", 4)),
        case("fewer", lambda v, _: grow(f"made-{v}", 1)),
        case("zero", lambda v, _: grow(f"made-{v}", 0)),
        case("unknown topic", grow(NOBODY, 4)),
        case("not the controller", grow("two", 4), "other"),
        case("assigned", lambda v, _: grow(f"placed-{v}", 3, [1, 2])),
        case("assigned: too few", lambda v, _: grow(f"placed-{v}", 6, [1, 2])),
        case("assigned: unknown broker", lambda v, _: grow(f"placed-{v}", 4, [7, 8])),
        case("assigned: twice", lambda v, _: grow(f"placed-{v}", 4, [1, 1])),
        case("assigned: uneven", lambda v, _: grow(f"placed-{v}", 4, [1])),
        Case("preferred, not needed", ELECT, elect({"two": [0]}), "controller"),
        Case("unknown topic", ELECT, elect({NOBODY: [0]}), "controller"),
        Case("unknown partition", ELECT, elect({"two": [7]}), "controller"),
        Case("unclean, not needed", ELECT, elect({"two": [0]}, 1), "controller", (1, 99)),
        Case("type 9", ELECT, elect({"two": [0]}, 9), "controller", (1, 99)),
        Case("nothing", ELECT, elect({}), "controller"),
        Case("all", ELECT, elect(None), "controller"),
        Case("not the controller", ELECT, elect({"two": [0]}), "other"),
    ]


def reassignments() -> list[Case]:
    def reassign(
        topic: str, partition: int, replicas: list[int] | None, factor: bool = True
    ) -> dict[str, Any]:
        place = {"partition_index": partition, "replicas": replicas}
        return {
            "timeout_ms": 10_000,
            "allow_replication_factor_change": factor,
            "topics": [{"name": topic, "partitions": [place]}],
        }

    def case(name: str, body: Any, to: str = "controller") -> Case:
        return Case(name, REASSIGN, body, to)

    listing = {"timeout_ms": 5000, "topics": None}
    named = {"timeout_ms": 5000, "topics": [{"name": "two", "partition_indexes": [0]}]}
    nobody = {"timeout_ms": 5000, "topics": [{"name": NOBODY, "partition_indexes": [0]}]}
    return [
        case("to the same", reassign("two", 0, [1, 2])),
        case("no replicas", reassign("two", 0, [])),
        case("a broker twice", reassign("two", 0, [1, 1])),
        case("a negative broker", reassign("two", 0, [-1, 1])),
        case("an unknown broker", reassign("two", 0, [9])),
        case("an unknown topic", reassign(NOBODY, 0, [1])),
        case("an unknown partition", reassign("two", 8, [1])),
        case("cancel nothing", reassign("two", 0, None)),
        case("not the controller", reassign("two", 0, [1]), "other"),
        Case("list: none", REASSIGNMENTS, listing, "controller", until=_nothing_moves),
        Case("list: one partition", REASSIGNMENTS, named, "controller"),
        Case("list: unknown topic", REASSIGNMENTS, nobody, "controller"),
        Case("list: not the controller", REASSIGNMENTS, listing, "other"),
    ]


def _nothing_moves(answer: Any) -> bool:
    return answer["topics"] == []


def describe(kind: int, name: str, *keys: str, **more: Any) -> dict[str, Any]:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }
    return {"resources": [resource], **more}


def alter(kind: int, name: str, check: bool = False, **values: Any) -> dict[str, Any]:
    entries = [{"name": k.replace("_", "."), "value": v} for k, v in values.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": entries}
    return {"resources": [resource], "validate_only": check}


def change(kind: int, name: str, *ops: tuple[str, int, Any]) -> dict[str, Any]:
    entries = [{"name": k, "config_operation": op, "value": v} for k, op, v in ops]
    resource = {"resource_type": kind, "resource_name": name, "configs": entries}
    return {"resources": [resource], "validate_only": False}


def case(name: str, key: int, body: Any, to: str = "1") -> Case:
    return Case(name, key, body, to)


def is_set(name: str, value: str | None) -> Any:
    def test(answer: Any) -> bool:
        (result,) = answer["results"]
        return any(c["name"] == name and c["value"] == value for c in result["configs"])

    return test


def configs() -> list[Case]:
    return [
        *_described(), *_altered(), *_changed(), *_of_brokers(), *_in_other_units(),
        *_of_what_is_not_built(),
    ]  # fmt: skip


def _in_other_units() -> list[Case]:
    """A property that has another name for another unit, and one of a listener's own."""
    given = {
        "log.retention.ms": "3600000", "log.roll.ms": "3600000", "log.roll.jitter.ms": "1000",
        "log.flush.interval.ms": "60000", "log.cleanup.policy": "compact",
        "log.segment.bytes": "2000000", "listener.name.external.max.connections": "1000",
    }  # fmt: skip
    other = (
        "log.retention.minutes", "log.retention.hours", "log.roll.hours", "log.roll.jitter.hours",
        "log.flush.scheduler.interval.ms", "max.connections",
    )  # fmt: skip
    names = (*given, *other)
    told = describe(BROKER, "1", *names, include_synonyms=True)
    of_topic = describe(TOPIC, "two", "retention.ms", "segment.ms", include_synonyms=True)
    change_all = change(BROKER, "1", *((name, 0, value) for name, value in given.items()))
    take_back = change(BROKER, "1", *((name, 1, None) for name in given))
    return [
        Case("synonyms of a broker", DESCRIBE_CONFIGS, told, versions=(1, 99)),
        case("set in other units", INCREMENTAL, change_all),
        Case(
            "synonyms in other units", DESCRIBE_CONFIGS, told, "1", (1, 99),
            until=is_set("log.segment.bytes", "2000000"),
        ),
        Case("synonyms of a topic then", DESCRIBE_CONFIGS, of_topic, versions=(1, 99)),
        case("taken back in other units", INCREMENTAL, take_back),
        Case(
            "synonyms as they were", DESCRIBE_CONFIGS, told, "1", (1, 99),
            until=is_set("log.segment.bytes", str(1 << 30)),
        ),
    ]  # fmt: skip


def _of_what_is_not_built() -> list[Case]:
    """Kafka's, without effect here, and kept all the same."""
    kerberos, threads = "sasl.kerberos.min.time.before.relogin", "background.threads"
    return [
        case("kerberos", INCREMENTAL, change(BROKER, "1", (kerberos, 0, "58000"))),
        Case(
            "kerberos is kept", DESCRIBE_CONFIGS,
            describe(BROKER, "1", kerberos, include_synonyms=True), "1",
            until=is_set(kerberos, "58000"),
        ),
        case("kerberos, no number", INCREMENTAL, change(BROKER, "1", (kerberos, 0, "soon"))),
        case("kerberos of all", INCREMENTAL, change(BROKER, "", (kerberos, 0, "58000"))),
        case(
            "kerberos of a listener", INCREMENTAL,
            change(BROKER, "1", (f"listener.name.external.{kerberos}", 0, "58000")),
        ),
        case("threads of all", INCREMENTAL, change(BROKER, "", (threads, 0, "12"))),
        Case(
            "threads of all are kept", DESCRIBE_CONFIGS,
            describe(BROKER, "", threads, include_synonyms=True), "1",
            until=is_set(threads, "12"),
        ),
        case("threads of all taken back", INCREMENTAL, change(BROKER, "", (threads, 1, None))),
        case("kerberos by the old way", ALTER, alter(BROKER, "1", sasl_kerberos_service_name="x")),
        case("nothing by the old way", ALTER, alter(BROKER, "1")),
        case(
            "refused all the same", INCREMENTAL, change(BROKER, "1", ("ssl.protocol", 0, "TLSv1.2"))
        ),
        case(
            "refused, and taken back", INCREMENTAL, change(BROKER, "1", ("ssl.protocol", 1, None))
        ),
    ]  # fmt: skip


def _of_brokers() -> list[Case]:
    """Kafka keeps names that it does not know and never shows their values; a number of threads is
    bound."""
    cases = []
    for name, entity in (("broker 1", "1"), ("all brokers", "")):
        told = describe(BROKER, entity, "foo.bar", include_synonyms=True)
        set_, delete = ("foo.bar", 0, "hunter2"), ("foo.bar", 1, None)
        cases += [
            case(f"a plugin's name, of {name}", INCREMENTAL, change(BROKER, entity, set_)),
            Case(f"kept, of {name}", DESCRIBE_CONFIGS, told, "1", until=is_set("foo.bar", None)),
            case(f"taken back, of {name}", INCREMENTAL, change(BROKER, entity, delete)),
        ]
    threads = "log.cleaner.threads"
    known = ("num.partitions", "metric.reporters", "process.roles", "remote.log.reader.threads")
    return [
        *cases,
        *(case(f"{n} is no plugin's", INCREMENTAL, change(BROKER, "", (n, 0, "2"))) for n in known),
        case(
            "a listener's, of all brokers",
            INCREMENTAL,
            change(BROKER, "", ("listener.name.a.foo", 0, "1")),
        ),
        case("too many cleaners", INCREMENTAL, change(BROKER, "1", (threads, 0, "3"))),
        case("no cleaner", INCREMENTAL, change(BROKER, "1", (threads, 0, "0"))),
        case("two cleaners", INCREMENTAL, change(BROKER, "1", (threads, 0, "2"))),
        Case(
            "two there are", DESCRIBE_CONFIGS,
            describe(BROKER, "1", threads, include_synonyms=True), "1", until=is_set(threads, "2"),
        ),
        case("one cleaner again", INCREMENTAL, change(BROKER, "1", (threads, 1, None))),
    ]  # fmt: skip


def _described() -> list[Case]:
    names = ("retention.ms", "cleanup.policy", "min.insync.replicas")
    return [
        case("a topic", DESCRIBE_CONFIGS, describe(TOPIC, "two")),
        case("some of a topic", DESCRIBE_CONFIGS, describe(TOPIC, "two", *names)),
        case("synonyms", DESCRIBE_CONFIGS, describe(TOPIC, "two", *names, include_synonyms=True)),
        case("unknown topic", DESCRIBE_CONFIGS, describe(TOPIC, NOBODY)),
        case("a bad name", DESCRIBE_CONFIGS, describe(TOPIC, "a b")),
        case("an unknown name", DESCRIBE_CONFIGS, describe(TOPIC, "two", "no.such.config")),
        case("a broker", DESCRIBE_CONFIGS, describe(BROKER, "1")),
        case("some of a broker", DESCRIBE_CONFIGS, describe(BROKER, "1", "broker.id", "listeners")),
        case("all brokers", DESCRIBE_CONFIGS, describe(BROKER, "")),
        case("another broker", DESCRIBE_CONFIGS, describe(BROKER, "2")),
        case("a broker by name", DESCRIBE_CONFIGS, describe(BROKER, "two")),
        case("a logger", DESCRIBE_CONFIGS, describe(LOGGER, "1", "root")),
        Case(
            "a logger's documentation",
            DESCRIBE_CONFIGS,
            describe(LOGGER, "1", "root", include_documentation=True),
            versions=(3, 99),
        ),
        case("loggers of no broker", DESCRIBE_CONFIGS, describe(LOGGER, "")),
        case("an unknown type", DESCRIBE_CONFIGS, describe(99, "two")),
        case("no type", DESCRIBE_CONFIGS, describe(0, "two")),
    ]


def _altered() -> list[Case]:
    return [
        case("set", ALTER, alter(TOPIC, "altered", retention_ms="6000")),
        Case(
            "it is set", DESCRIBE_CONFIGS, describe(TOPIC, "altered", "retention.ms"), "1",
            until=is_set("retention.ms", "6000"),
        ),
        case("set another: the first is gone", ALTER, alter(TOPIC, "altered", segment_ms="7000")),
        Case(
            "it is gone",
            DESCRIBE_CONFIGS,
            describe(TOPIC, "altered", "retention.ms", "segment.ms"),
            "1",
            until=is_set("segment.ms", "7000"),
        ),
        case("only to check", ALTER, alter(TOPIC, "altered", check=True, retention_ms="1")),
        case("alter: a bad value", ALTER, alter(TOPIC, "altered", retention_ms="soon")),
        case("alter: an unknown name", ALTER, alter(TOPIC, "altered", nosuch="1")),
        case("alter: a null value", ALTER, alter(TOPIC, "altered", retention_ms=None)),
        case("alter: unknown topic", ALTER, alter(TOPIC, NOBODY, retention_ms="1")),
        case("alter: no type", ALTER, alter(0, "two", retention_ms="1")),
    ]  # fmt: skip


def _changed() -> list[Case]:
    return [
        case("change", INCREMENTAL, change(TOPIC, "altered", ("max.message.bytes", 0, "99999"))),
        Case(
            "it is changed",
            DESCRIBE_CONFIGS,
            describe(TOPIC, "altered", "max.message.bytes", "segment.ms"),
            "1",
            until=is_set("max.message.bytes", "99999"),
        ),
        case("append", INCREMENTAL, change(TOPIC, "altered", ("cleanup.policy", 2, "compact"))),
        case("subtract", INCREMENTAL, change(TOPIC, "altered", ("cleanup.policy", 3, "delete"))),
        Case(
            "the list", DESCRIBE_CONFIGS, describe(TOPIC, "altered", "cleanup.policy"), "1",
            until=is_set("cleanup.policy", "compact"),
        ),
        case("append to no list", INCREMENTAL, change(TOPIC, "altered", ("segment.ms", 2, "1"))),
        case("delete", INCREMENTAL, change(TOPIC, "altered", ("segment.ms", 1, None))),
        case("operation 9", INCREMENTAL, change(TOPIC, "altered", ("segment.ms", 9, "1"))),
        case("null", INCREMENTAL, change(TOPIC, "altered", ("segment.ms", 0, None))),
        case(
            "one name twice",
            INCREMENTAL,
            change(TOPIC, "altered", ("segment.ms", 0, "1"), ("segment.ms", 0, "2")),
        ),
        case("change: unknown topic", INCREMENTAL, change(TOPIC, NOBODY, ("segment.ms", 0, "1"))),
        case("change: bad value", INCREMENTAL, change(TOPIC, "altered", ("segment.ms", 0, "x"))),
        case("change: no type", INCREMENTAL, change(0, "two", ("segment.ms", 0, "1"))),
        case(
            "change: a broker's static one",
            INCREMENTAL,
            change(BROKER, "1", ("zookeeper.connect", 0, "x")),
        ),
        case(
            "change: another broker",
            INCREMENTAL,
            change(BROKER, "2", ("log.cleaner.threads", 0, "2")),
        ),
    ]  # fmt: skip


def throttles() -> list[Case]:
    """Replication throttles, and unclean election by the cluster's default."""

    def is_set(name: str, value: str | None) -> Any:
        def test(answer: Any) -> bool:
            (result,) = answer["results"]
            found = {c["name"]: c["value"] for c in result["configs"]}
            return found.get(name) == value

        return test

    listed, rate = "leader.replication.throttled.replicas", "leader.replication.throttled.rate"
    moves, unclean = (
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "unclean.leader.election.enable",
    )

    def case(name: str, *op: Any, kind: int = TOPIC, of: str = "altered") -> Case:
        return Case(name, INCREMENTAL, change(kind, of, op), "1")

    def seen(name: str, kind: int, of: str, key: str, value: str | None) -> Case:
        body = describe(kind, of, key, include_synonyms=True)
        return Case(name, DESCRIBE_CONFIGS, body, "1", until=is_set(key, value))

    return [
        case("throttle replicas", listed, 0, "0:1,1:2"),
        seen("throttled replicas", TOPIC, "altered", listed, "0:1,1:2"),
        case("throttle one more", listed, 2, "3:1"),
        seen("one more throttled", TOPIC, "altered", listed, "0:1,1:2,3:1"),
        case("throttle all", listed, 0, "*"),
        case("throttle: no pair", listed, 0, "0"),
        case("throttle: a word", listed, 0, "none"),
        case("throttle: all and one", listed, 0, "*,0:1"),
        case("throttle none", listed, 0, ""),
        case("a rate", rate, 0, "1000000", kind=BROKER, of="1"),
        seen("the rate", BROKER, "1", rate, "1000000"),
        case("a negative rate", rate, 0, "-1", kind=BROKER, of="1"),
        case("a rate of words", rate, 0, "fast", kind=BROKER, of="1"),
        case("no rate", rate, 1, None, kind=BROKER, of="1"),
        case("a rate of moves", moves, 0, "1000000", kind=BROKER, of=""),
        seen("the rate of moves", BROKER, "", moves, "1000000"),
        case("no rate of moves", moves, 1, None, kind=BROKER, of=""),
        case("unclean: perhaps", unclean, 0, "perhaps", kind=BROKER, of=""),
        case("unclean by default", unclean, 0, "true", kind=BROKER, of=""),
        seen("it is unclean", BROKER, "", unclean, "true"),
        seen("topics are unclean", TOPIC, "two", unclean, "true"),
        case("clean again", unclean, 1, None, kind=BROKER, of=""),
        seen("topics are clean", TOPIC, "two", unclean, "false"),
    ]


def deletions() -> list[Case]:
    def named(*names: str) -> Any:
        def body(version: int, _: Any) -> dict[str, Any]:
            chosen = [n.format(v=version) for n in names]
            if version >= 6:
                return {"topics": [{"name": n} for n in chosen], "timeout_ms": 10_000}
            return {"topic_names": chosen, "timeout_ms": 10_000}

        return body

    def case(name: str, body: Any, to: str = "controller") -> Case:
        return Case(name, DELETE, body, to)

    some_id = "11111111-2222-3333-4444-555555555555"
    return [
        case("a topic", named("made-{v}")),
        case("the same again", named("made-{v}")),
        case("two", named("a-{v}", "b-{v}")),
        case("one of two is unknown", named("c-{v}", "d-{v}")),
        case("unknown", named(NOBODY)),
        case("no name", named("")),
        case("not the controller", named("two"), "other"),
        case("none", named()),
        Case(
            "by an unknown id",
            DELETE,
            {"topics": [{"name": None, "topic_id": some_id}], "timeout_ms": 5000},
            "controller",
            (6, 99),
        ),
        *(
            Case(what, DELETE, {"topics": [topic], "timeout_ms": 5000}, "controller", (6, 99))
            for what, topic in (
                ("neither name nor id", {"name": None}),
                ("both name and id", {"name": "two", "topic_id": some_id}),
            )
        ),
    ]


def quotas_of_one_twice() -> dict[str, Any]:
    entity = [{"entity_type": "user", "entity_name": "u"}]
    return {"entries": [{"entity": entity, "ops": []}] * 2, "validate_only": True}


def others() -> list[Case]:
    def dirs(topics: Any) -> dict[str, Any]:
        return {"topics": [{"topic": t, "partitions": p} for t, p in topics.items()]}

    def move(path: str, topic: str, *partitions: int) -> dict[str, Any]:
        named = [{"name": topic, "partitions": list(partitions)}]
        return {"dirs": [{"path": path, "topics": named}]}

    def where(_: int, answer: Any, facts: dict[str, Any]) -> None:
        facts["log dir"] = answer["results"][0]["log_dir"]

    acl = {
        "resource_type": 2, "resource_name": "two", "resource_pattern_type": 3,
        "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    found = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    return [
        Case("a partition", LOG_DIRS, dirs({"empty": [0]}), keep=where),
        Case("to where it is", MOVE, lambda _, facts: move(facts["log dir"], "empty", 0)),
        Case("an unknown partition", MOVE, lambda _, facts: move(facts["log dir"], "empty", 9)),
        Case("an unknown topic", MOVE, lambda _, facts: move(facts["log dir"], NOBODY, 0)),
        Case("a long name", MOVE, lambda _, facts: move(facts["log dir"], "x" * 249, 0)),
        Case("an unknown directory", MOVE, move("/no/such/directory", "empty", 0)),
        Case("nothing to move", MOVE, {"dirs": []}),
        Case("unknown topic", LOG_DIRS, dirs({NOBODY: [0]})), Case("no topics", LOG_DIRS, dirs({})),
        Case("describe", 29, found), Case("create", 30, {"creations": [acl]}),
        Case("delete", 31, {"filters": [found]}), Case("handshake", 17, {"mechanism": "PLAIN"}),
        Case("authenticate", 36, {"auth_bytes": b"x"}),
        Case("SCRAM of an unknown user", 50, {"users": [{"name": "nobody"}]}),
        Case("a token", 38, {"renewers": [], "max_lifetime_ms": -1}),
        Case("a token put off", 39, {"hmac": b"none", "renew_period_ms": -1}),
        Case("a token's end", 40, {"hmac": b"none", "expiry_time_period_ms": -1}),
        Case("tokens", 41, {"owners": None}),
        Case("quotas of one twice", 49, quotas_of_one_twice()),
        Case("SCRAM of one twice", 50, {"users": [{"name": "a"}, {"name": "a"}]}),
    ]  # fmt: skip


def cases() -> list[Case]:
    return [
        *creations(), *growth(), *reassignments(), *configs(), *throttles(), *deletions(),
        *others(),
    ]  # fmt: skip
