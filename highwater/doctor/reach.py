"""Whether a client gets to its cluster: each bootstrap address, then each address that the brokers
advertise, which is where most connections fail.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from highwater.doctor.client_findings import Effect, Finding
from highwater.doctor.talk import Login, Talk, Unreachable, open_talk
from highwater.kafka.wire.messages import MetadataRequest

METADATA = 4
Tell = Callable[[str], None]


@dataclass(slots=True)
class Reached:
    """An open connection, where there is one, and what was found on the way."""

    findings: list[Finding] = field(default_factory=list)
    talk: Talk | None = None
    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """The addresses in HOST:PORT,...; raises ValueError with the part that is no address."""
    found = []
    for part in bootstrap.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{part.strip()!r} is no HOST:PORT")
        found.append((host.rpartition("//")[2].strip("[]"), int(port)))
    return found


def reach(bootstrap: Sequence[tuple[str, int]], login: Login, tell: Tell) -> Reached:
    """Connects as the client would, step by step; the caller closes `talk`."""
    reached = Reached()
    for host, port in bootstrap:
        try:
            talk = open_talk(host, port, login)
        except Unreachable as problem:
            reached.findings.append(_finding(f"{host}:{port}", problem))
            continue
        tell(f"{host}:{port} answers, with {len(talk.versions)} APIs")
        if reached.talk is None:
            _learn(reached, talk, host, port, login, tell)
        else:
            talk.close()
    if reached.talk is not None:
        for finding in [f for f in reached.findings if f.effect is Effect.UNREACHABLE]:
            _soften(reached, finding, bootstrap)
    reached.findings = _together(reached.findings)
    return reached


def _together(findings: Sequence[Finding]) -> list[Finding]:
    """Merges findings about the same fault of several addresses into one."""
    places: dict[tuple[Effect, str, str], list[str]] = {}
    for f in findings:
        places.setdefault((f.effect, f.why, f.remedy), []).append(f.what)
    return [Finding(effect, ", ".join(p), why, do) for (effect, why, do), p in places.items()]


def _finding(place: str, problem: Unreachable) -> Finding:
    return Finding(Effect.UNREACHABLE, place, _sentence(problem.why), problem.remedy)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _soften(reached: Reached, finding: Finding, bootstrap: Sequence[tuple[str, int]]) -> None:
    """Turns a finding about a dead bootstrap address into a remark, because another one answers."""
    if finding.what in {f"{host}:{port}" for host, port in bootstrap}:
        place = reached.findings.index(finding)
        reached.findings[place] = Finding(
            Effect.REMARK, finding.what, f"{finding.why} Another address answers.", finding.remedy
        )


def _learn(reached: Reached, talk: Talk, host: str, port: int, login: Login, tell: Tell) -> None:
    """Requests the brokers' addresses, and connects to each."""
    try:
        answer = talk.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), METADATA)
    except OSError:
        talk.close()
        wanted = "SASL_SSL" if login.tls else "SASL_PLAINTEXT"
        reached.findings.append(
            _finding(
                f"{host}:{port}",
                Unreachable(
                    "the broker hangs up at the first request after ApiVersions: it wants a login",
                    f"security.protocol={wanted}, sasl.mechanism and the user's credentials",
                ),
            )
        )
        return
    reached.talk = talk
    reached.brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
    if answer.controller_id not in reached.brokers:
        reached.findings.append(
            Finding(
                Effect.REMARK,
                f"{host}:{port}",
                "The cluster has no controller at this moment: no leader is elected and no topic"
                " created until there is one.",
            )
        )
    for number, (name, its_port) in sorted(reached.brokers.items()):
        finding = _advertised(number, name, its_port, host, login)
        if finding is None:
            tell(f"broker {number} answers at its advertised address {name}:{its_port}")
        else:
            reached.findings.append(finding)


def _advertised(number: int, name: str, port: int, bootstrap: str, login: Login) -> Finding | None:
    what = f"broker {number} advertises {name}:{port}"
    try:
        open_talk(name, port, login).close()
    except Unreachable as problem:
        remedy = "advertised.listeners of the broker: an address that its clients can reach"
        why = problem.why
        if _is_loopback(name) and not _is_loopback(bootstrap):
            why += ", as that is the client's own machine and not the broker's"
        elif "certificate" in why:
            remedy = problem.remedy
        return Finding(Effect.UNREACHABLE, what, _sentence(why), remedy)
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except (OSError, ValueError):
        return False
