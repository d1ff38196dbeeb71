"""The effects of settings on records.  Pure: each rule looks at one client's settings.

A rule states the worst that its setting allows while brokers fail and applications die, not what
happens each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from highwater.doctor.client_findings import Effect, Finding
from highwater.doctor.dialects import ClientSettings
from highwater.kafka.security.jaas import JaasError, parse_jaas

Rule = Callable[[ClientSettings], Iterator[Finding]]

IN_FLIGHT = "max.in.flight.requests.per.connection"
FAILOVER_MS = 30_000
"""How long a failover may take: in Apache Kafka a dead broker's session alone lasts 18 s, and the
election comes after that."""


def findings(settings: ClientSettings) -> list[Finding]:
    """The findings of the rules for the settings' role; without a role, those for every client."""
    rules = {"producer": PRODUCER, "consumer": CONSUMER}.get(settings.role, ())
    return [finding for rule in (*rules, *BOTH) for finding in rule(settings)]


# -------------------------------------------------------------------- producers


def acks(settings: ClientSettings) -> Iterator[Finding]:
    setting, remedy = settings.written("acks"), f"{settings.dialect.own_name('acks')}=all"
    if settings.get("acks") == "0":
        yield Finding(
            Effect.LOSES,
            setting,
            "No broker answers, so a record that never arrived looks like one that is stored.",
            remedy,
        )
    elif settings.get("acks") == "1":
        yield Finding(
            Effect.LOSES,
            setting,
            "The leader answers before its followers have the record: if it dies then, the record"
            " is gone although it was acknowledged.",
            remedy,
        )
    elif settings.get("acks") != "all":
        yield Finding(Effect.REFUSED, setting, "Kafka knows 0, 1 and all (-1).", remedy)


def conflicts(settings: ClientSettings) -> Iterator[Finding]:
    """Settings that idempotence does not allow: clients refuse them, or silently turn it off."""
    against = settings.against_idempotence
    if not against:
        return
    why = {"acks": "acks=all", IN_FLIGHT: "at most 5 in flight", "retries": "retries"}
    needs = " and ".join(why[name] for name in against)
    own = settings.dialect.own_name
    told = ", ".join(settings.written(name) for name in against)
    if settings.get("transactional.id"):
        asked = settings.written("transactional.id")
    elif settings.on("enable.idempotence") and "enable.idempotence" in settings.given:
        asked = settings.written("enable.idempotence")
    elif settings.on("enable.idempotence") and settings.dialect.falls_back:
        yield Finding(
            Effect.REMARK,
            told,
            f"Idempotence, which is on by default, needs {needs}, and is silently off here.",
            f"remove it, or say so: {own('enable.idempotence')}=false",
        )
        return
    else:
        return
    yield Finding(
        Effect.REFUSED,
        f"{asked}, {told}",
        f"Idempotence needs {needs}: the producer ends with a configuration error.",
        "leave these settings out",
    )


def repeats(settings: ClientSettings) -> Iterator[Finding]:
    if settings.idempotent or settings.number("retries") == 0 or settings.get("acks") == "0":
        return
    yield Finding(
        Effect.REPEATS,
        _off(settings),
        "Where an answer is lost, the producer sends the record again, and the broker stores it"
        " twice.",
        f"{settings.dialect.own_name('enable.idempotence')}=true",
    )


def reorders(settings: ClientSettings) -> Iterator[Finding]:
    retries = settings.number("retries") != 0 and settings.get("acks") != "0"
    if settings.idempotent or not retries or settings.number(IN_FLIGHT) <= 1:
        return
    yield Finding(
        Effect.REORDERS,
        f"{_off(settings)}, {settings.written(IN_FLIGHT)}",
        "While one request is sent again, the one behind it may already be stored: two records of"
        " one partition change places.",
        f"{settings.dialect.own_name('enable.idempotence')}=true,"
        f" or {settings.dialect.own_name(IN_FLIGHT)}=1",
    )


def retries(settings: ClientSettings) -> Iterator[Finding]:
    if settings.number("retries") == 0:
        yield Finding(
            Effect.LOSES,
            settings.written("retries"),
            "Each change of a leader fails the sends that are under way; what the application does"
            " not send again itself is lost.",
            f"remove it, and bound the time by {settings.dialect.own_name('delivery.timeout.ms')}",
        )


def delivery_time(settings: ClientSettings) -> Iterator[Finding]:
    limit = settings.number("delivery.timeout.ms")
    least = settings.number("linger.ms") + settings.number("request.timeout.ms")
    if settings.dialect.name == "java" and limit < least:
        yield Finding(
            Effect.REFUSED,
            settings.written("delivery.timeout.ms"),
            f"It has to be at least linger.ms + request.timeout.ms ({least:.0f} ms): the producer"
            " ends with a configuration error.",
            f"delivery.timeout.ms={max(least, 120_000):.0f}",
        )
    elif 0 < limit < FAILOVER_MS:
        yield Finding(
            Effect.LOSES,
            settings.written("delivery.timeout.ms"),
            "An election may take longer, and then the sends that wait for it fail; what the"
            " application does not send again itself is lost.",
            f"{settings.dialect.own_name('delivery.timeout.ms')}=120000",
        )


def transactions(settings: ClientSettings) -> Iterator[Finding]:
    if not (name := settings.get("transactional.id")):
        return
    yield Finding(
        Effect.REMARK,
        f"{settings.dialect.own_name('transactional.id')}={name}",
        "Two producers that run with one id fence each other.",
        "one id for each instance, the same after its restart",
    )


def _off(settings: ClientSettings) -> str:
    against = settings.against_idempotence
    if against and "enable.idempotence" not in settings.given and settings.dialect.falls_back:
        return ", ".join(settings.written(name) for name in against)
    return settings.written("enable.idempotence")


# -------------------------------------------------------------------- consumers


def automatic_commits(settings: ClientSettings) -> Iterator[Finding]:
    if not settings.get("group.id") or not settings.on("enable.auto.commit"):
        return
    own = settings.dialect.own_name
    stored_by_hand = settings.given.get("enable.auto.offset.store", "").lower() == "false"
    setting = settings.written("enable.auto.commit")
    if settings.dialect.commits_behind and not stored_by_hand:
        remedy = f"{own('enable.auto.commit')}=false, and commit what has been processed"
        if settings.dialect.name == "librdkafka":
            remedy += "; or enable.auto.offset.store=false, and store each offset once it is"
        yield Finding(
            Effect.LOSES,
            setting,
            "Offsets are committed in the background as soon as records are handed out: what the"
            " application has not processed when it dies is never read again.",
            remedy,
        )
    yield Finding(
        Effect.REPEATS,
        setting,
        "What was processed since the last automatic commit is read again after a crash or a"
        " rebalance; and where other threads process, what they have not finished may be"
        " committed, and so be lost.",
        "commit by hand after processing, and make processing idempotent; or use transactions",
    )


def reset(settings: ClientSettings) -> Iterator[Finding]:
    value = settings.get("auto.offset.reset")
    own = settings.dialect.own_name("auto.offset.reset")
    if value in ("latest", "largest", "end"):
        yield Finding(
            Effect.LOSES,
            settings.written("auto.offset.reset"),
            "Where nothing is committed (a new group or partition, or offsets that expired), it"
            " begins at the end, and skips what was written before.",
            f"{own}=earliest, or {own}={_none(settings)}, which ends with an error instead",
        )
    elif value in ("earliest", "smallest", "beginning") and settings.get("group.id"):
        yield Finding(
            Effect.REMARK,
            settings.written("auto.offset.reset"),
            "Where the committed offset is gone, everything is read again.",
            f"{own}={_none(settings)} ends with an error instead",
        )


def _none(settings: ClientSettings) -> str:
    return "error" if settings.dialect.name == "librdkafka" else "none"


def isolation(settings: ClientSettings) -> Iterator[Finding]:
    if settings.get("isolation.level") == "read_uncommitted":
        yield Finding(
            Effect.UNCOMMITTED,
            settings.written("isolation.level"),
            "Records of transactions that are still open, or that abort, are read; without"
            " transactional producers nothing changes.",
            f"{settings.dialect.own_name('isolation.level')}=read_committed",
        )


def sessions(settings: ClientSettings) -> Iterator[Finding]:
    session, beat = settings.number("session.timeout.ms"), settings.number("heartbeat.interval.ms")
    if not settings.get("group.id") or session != session or beat != beat:
        return
    told = f"{settings.written('heartbeat.interval.ms')}, {settings.written('session.timeout.ms')}"
    if beat >= session:
        yield Finding(
            Effect.REFUSED,
            told,
            "Heartbeats come less often than the session lasts.",
            f"{settings.dialect.own_name('heartbeat.interval.ms')}={max(1, session // 3):.0f}",
        )
    elif beat * 3 > session:
        yield Finding(
            Effect.REPEATS,
            told,
            "One or two heartbeats that come late end the session: the group rebalances, and what"
            " is not committed is read again.",
            f"{settings.dialect.own_name('heartbeat.interval.ms')}={max(1, session // 3):.0f}",
        )


# -------------------------------------------------------------------- both


def security(settings: ClientSettings) -> Iterator[Finding]:
    protocol = settings.get("security.protocol").upper()
    own = settings.dialect.own_name
    sasl = [name for name in settings.given if name.startswith("sasl.")]
    tls = [
        name
        for name in settings.given
        if name.startswith("ssl.") and name != "ssl.endpoint.identification.algorithm"
    ]
    if sasl and "SASL" not in protocol:
        yield Finding(
            Effect.UNREACHABLE,
            settings.written("security.protocol"),
            f"{own(sasl[0])} has no effect without SASL.",
            f"{own('security.protocol')}=SASL_SSL (or SASL_PLAINTEXT)",
        )
    elif tls and "SSL" not in protocol:
        yield Finding(
            Effect.UNREACHABLE,
            settings.written("security.protocol"),
            f"{own(tls[0])} has no effect without TLS.",
            f"{own('security.protocol')}=SSL (or SASL_SSL)",
        )
    if jaas := settings.given.get("sasl.jaas.config"):
        try:
            parse_jaas(jaas)
        except JaasError as error:
            problem, _, remedy = str(error).partition("; ")
            what = own("sasl.jaas.config")
            yield Finding(Effect.REFUSED, what, f"{problem[:1].upper()}{problem[1:]}.", remedy)
    algorithm = settings.get("ssl.endpoint.identification.algorithm").lower()
    if "SSL" in protocol and algorithm in ("", "none"):
        yield Finding(
            Effect.REMARK,
            f"{own('ssl.endpoint.identification.algorithm')}={algorithm}",
            "Anyone with a certificate of that authority can pass for the broker.",
            "leave it at https",
        )
    if "SASL" in protocol and "SSL" not in protocol and settings.get("sasl.mechanism") == "PLAIN":
        yield Finding(
            Effect.REMARK,
            settings.written("security.protocol"),
            "PLAIN sends the password as it is.",
            f"{own('security.protocol')}=SASL_SSL",
        )


PRODUCER: tuple[Rule, ...] = (
    acks, conflicts, repeats, reorders, retries, delivery_time, transactions,
)  # fmt: skip
CONSUMER: tuple[Rule, ...] = (automatic_commits, reset, isolation, sessions)
BOTH: tuple[Rule, ...] = (security,)
