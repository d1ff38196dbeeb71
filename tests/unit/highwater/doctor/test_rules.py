"""The effect that each setting is said to have, with the clients' own names and defaults."""

from __future__ import annotations

import pytest

from highwater.doctor.client_findings import Effect, Finding, headline
from highwater.doctor.dialects import (
    AIOKAFKA,
    JAVA,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    Dialect,
    guess,
    misspelt,
    roles,
    settings_of,
)
from highwater.doctor.rules import findings

LOSES, REPEATS, REORDERS = Effect.LOSES, Effect.REPEATS, Effect.REORDERS
REFUSED, REMARK, UNCOMMITTED = Effect.REFUSED, Effect.REMARK, Effect.UNCOMMITTED
UNREACHABLE = Effect.UNREACHABLE


def told(dialect: Dialect, role: str, **raw: str) -> set[tuple[Effect, str]]:
    names = {name if dialect.underscores else name.replace("_", "."): v for name, v in raw.items()}
    return {(f.effect, f.what) for f in findings(settings_of(names, dialect, role))}


OFF = "enable.idempotence=false (default)"
FIVE, MANY = (
    "max.in.flight.requests.per.connection=5 (default)",
    "max.in.flight.requests.per.connection=1000000 (default)",
)


@pytest.mark.parametrize(
    ("dialect", "raw", "expected"),
    [
        (JAVA, {}, set()),
        (KAFKA_PYTHON, {}, set()),
        (LIBRDKAFKA, {}, {(REPEATS, OFF), (REORDERS, f"{OFF}, {MANY}")}),
        (LIBRDKAFKA, {"enable_idempotence": "true"}, set()),
        (
            AIOKAFKA,
            {},
            {(LOSES, "acks=1 (default)"), (REPEATS, "enable_idempotence=false (default)")},
        ),
        (AIOKAFKA, {"acks": "all", "enable_idempotence": "true"}, set()),
        (
            JAVA,
            {"acks": "1"},
            {
                (LOSES, "acks=1"),
                (REPEATS, "acks=1"),
                (REORDERS, f"acks=1, {FIVE}"),
                (REMARK, "acks=1"),
            },
        ),
        (JAVA, {"acks": "-1"}, set()),
        (JAVA, {"acks": "0"}, {(LOSES, "acks=0"), (REMARK, "acks=0")}),
        (JAVA, {"acks": "2"}, {(REFUSED, "acks=2"), (REMARK, "acks=2")} | {
            (REPEATS, "acks=2"), (REORDERS, f"acks=2, {FIVE}")}),
        (
            JAVA,
            {"acks": "1", "enable_idempotence": "true"},
            {(LOSES, "acks=1"), (REFUSED, "enable.idempotence=true, acks=1")},
        ),
        (
            JAVA,
            {"transactional_id": "pay", "acks": "1"},
            {
                (LOSES, "acks=1"),
                (REFUSED, "transactional.id=pay, acks=1"),
                (REMARK, "transactional.id=pay"),
            },
        ),
        (JAVA, {"retries": "0"}, {(LOSES, "retries=0"), (REMARK, "retries=0")}),
        (JAVA, {"delivery_timeout_ms": "20000"}, {(REFUSED, "delivery.timeout.ms=20000")}),
        (
            JAVA,
            {"delivery_timeout_ms": "20000", "request_timeout_ms": "5000"},
            {(LOSES, "delivery.timeout.ms=20000")},
        ),
        (JAVA, {"delivery_timeout_ms": "30000"}, set()),
        (
            JAVA,
            {"enable_idempotence": "false", "max_in_flight_requests_per_connection": "1"},
            {(REPEATS, "enable.idempotence=false")},
        ),
        (
            JAVA,
            {"sasl_mechanism": "PLAIN"},
            {(UNREACHABLE, "security.protocol=PLAINTEXT (default)")},
        ),
    ],
)  # fmt: skip
def test_a_producer(
    dialect: Dialect, raw: dict[str, str], expected: set[tuple[Effect, str]]
) -> None:
    assert told(dialect, "producer", **raw) == expected


COMMITTED = {"isolation_level": "read_committed"}
SURE = {"auto_offset_reset": "none", **COMMITTED}


@pytest.mark.parametrize(
    ("dialect", "raw", "expected"),
    [
        (JAVA, SURE, set()),
        (JAVA, {**SURE, "group_id": "g"}, {(REPEATS, "enable.auto.commit=true (default)")}),
        (JAVA, {**SURE, "group_id": "g", "enable_auto_commit": "false"}, set()),
        (
            LIBRDKAFKA,
            {"auto_offset_reset": "error", "group_id": "g"},
            {
                (LOSES, "enable.auto.commit=true (default)"),
                (REPEATS, "enable.auto.commit=true (default)"),
            },
        ),
        (
            LIBRDKAFKA,
            {"auto_offset_reset": "error", "group_id": "g", "enable_auto_offset_store": "false"},
            {(REPEATS, "enable.auto.commit=true (default)")},
        ),
        (JAVA, COMMITTED, {(LOSES, "auto.offset.reset=latest (default)")}),
        (
            JAVA,
            {"auto_offset_reset": "none"},
            {(UNCOMMITTED, "isolation.level=read_uncommitted (default)")},
        ),
        (
            JAVA,
            {
                **SURE, "group_id": "g", "enable_auto_commit": "false",
                "session_timeout_ms": "6000",
            },
            {(REPEATS, "heartbeat.interval.ms=3000 (default), session.timeout.ms=6000")},
        ),
        (
            JAVA,
            {
                **SURE, "group_id": "g", "enable_auto_commit": "false",
                "session_timeout_ms": "3000",
            },
            {(REFUSED, "heartbeat.interval.ms=3000 (default), session.timeout.ms=3000")},
        ),
    ],
)  # fmt: skip
def test_a_consumer(
    dialect: Dialect, raw: dict[str, str], expected: set[tuple[Effect, str]]
) -> None:
    assert told(dialect, "consumer", **raw) == expected


def test_findings_name_a_setting_as_its_user_does() -> None:
    settings = settings_of({"request.required.acks": "1"}, LIBRDKAFKA, "producer")
    assert findings(settings)[0].what == "request.required.acks=1"
    settings = settings_of({"request_timeout_ms": "5000"}, AIOKAFKA, "producer")
    assert "request_timeout_ms=5000" in {f.what for f in findings(settings)}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["bootstrap.servers", "acks"], (JAVA, False)),
        (["key.serializer"], (JAVA, True)),
        (["enable.auto.offset.store"], (LIBRDKAFKA, True)),
        (["bootstrap_servers"], (KAFKA_PYTHON, True)),
    ],
)
def test_the_names_tell_the_client(names: list[str], expected: tuple[Dialect, bool]) -> None:
    assert guess(dict.fromkeys(names, "")) == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["acks"], ["producer"]),
        (["group.id"], ["consumer"]),
        (["acks", "group.id"], ["producer", "consumer"]),
        (["bootstrap.servers", "request.timeout.ms"], []),
    ],
)
def test_the_names_tell_the_role(names: list[str], expected: list[str]) -> None:
    assert roles(dict.fromkeys(names, ""), JAVA) == expected


def test_a_misspelt_name_is_noticed_and_a_foreign_one_is_not() -> None:
    raw = {"enable.idempotance": "true", "ssl.keystore.location": "x", "acks": "all"}
    assert misspelt(raw, JAVA) == {"enable.idempotance": "enable.idempotence"}


@pytest.mark.parametrize(
    ("effects", "sentence"),
    [
        ([], "nothing was found that loses, repeats or reorders records"),
        ([REMARK], "nothing was found that loses, repeats or reorders records"),
        ([REORDERS, LOSES], "this client can lose and reorder records"),
        (
            [LOSES, UNCOMMITTED, UNREACHABLE],
            "this client can lose records, reads records of aborted transactions and cannot reach"
            " the cluster",
        ),
    ],
)
def test_the_headline(effects: list[Effect], sentence: str) -> None:
    assert headline([Finding(effect, "", "") for effect in effects]) == sentence


def test_a_jaas_entry_that_is_none_is_told_without_its_text() -> None:
    raw = {"security.protocol": "SASL_SSL", "sasl.jaas.config": 'X required password="s3cret"'}
    (finding,) = findings(settings_of(raw, JAVA, "client"))
    assert (finding.effect, finding.what) == (REFUSED, "sasl.jaas.config")
    assert finding.why == "Not a JAAS entry."
    assert "s3cret" not in finding.why + finding.remedy


TLS = {"security_protocol": "SSL"}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (TLS, set()),
        ({"ssl_truststore_location": "t.pem"},
         {(UNREACHABLE, "security.protocol=PLAINTEXT (default)")}),
        ({**TLS, "sasl_mechanism": "PLAIN"}, {(UNREACHABLE, "security.protocol=SSL")}),
        ({**TLS, "ssl_endpoint_identification_algorithm": ""},
         {(REMARK, "ssl.endpoint.identification.algorithm=")}),
        ({"ssl_endpoint_identification_algorithm": ""}, set()),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
         {(REMARK, "security.protocol=SASL_PLAINTEXT")}),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}, set()),
    ],
)  # fmt: skip
def test_security_of_either_role(raw: dict[str, str], expected: set[tuple[Effect, str]]) -> None:
    sure = {"producer": {}, "consumer": SURE}
    for role, others in sure.items():
        assert told(JAVA, role, **others, **raw) == expected
