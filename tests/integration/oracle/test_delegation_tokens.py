"""Delegation tokens on a cluster of one broker of ours and one of Apache Kafka: each makes tokens
that count on the other, and both answer alike."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from kafka.protocol.admin import CreateAclsRequest

from highwater.cluster.ask import ask
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, Permission, ResourceType
from highwater.kafka.security.links import SecuredNetwork
from highwater.kafka.security.sasl import SaslLogin
from highwater.kafka.security.settings import ListenerSettings
from highwater.kafka.wire.token_messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from highwater.world.real.network import RealNetwork
from tests.integration.oracle.rig import APACHE, HIGHWATER, program
from tests.integration.robustness.rig import BrokerProcess, ZooKeeper, fresh_port
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
TOOL = "org.apache.kafka.tools.DelegationTokenCommand"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SECRET = "s3cret-of-all-brokers"
USERS = ("alice", "bob", "carol")


@dataclass(frozen=True)
class Member:
    broker: BrokerProcess
    sasl: int

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.sasl


@pytest.fixture(scope="module")
def members(
    tmp_path_factory: pytest.TempPathFactory, apache_tool: Callable[..., Any]
) -> Iterator[dict[str, Member]]:
    folder = tmp_path_factory.mktemp("tokens")
    zookeeper = ZooKeeper(folder / "zookeeper")
    path, found = zookeeper.fresh_path(), {}
    try:
        for number, kind in enumerate((HIGHWATER, APACHE), 1):
            found[kind] = member(folder / kind, path, kind, number)
            found[kind].broker.start()
        for one in found.values():
            one.broker.serving()
        yield found
    finally:
        for one in found.values():
            one.broker.end()
        zookeeper.end()


def member(folder: Path, path: str, kind: str, number: int) -> Member:
    broker, sasl = BrokerProcess(folder, path, number), fresh_port()
    broker.program = program(kind)
    users = " ".join(f'user_{user}="{user}-s3cret"' for user in USERS)
    broker.properties |= broker.program.prepare(folder, 2, "test") | {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},SASL://127.0.0.1:{sasl}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": SECRET,
        "delegation.token.expiry.check.interval.ms": "500",
        "inter.broker.protocol.version": "2.6",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
    }
    return Member(broker, sasl)


def asked(one: Member, user: str, request: Any, version: int = 2) -> Any:
    """The answer; to nobody in particular where `user` is empty."""
    if not user:
        return trio.run(ask, one.broker.address, request, version, 10.0)
    given = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} username="{user}" password="{user}-s3cret";',
    }
    login = SaslLogin(ListenerSettings(given, "SASL", "SASL_PLAINTEXT"))
    network = SecuredNetwork(RealNetwork(), None, login)
    return trio.run(ask, one.address, request, version, 10.0, network)


def create(one: Member, user: str, lifetime_ms: int = -1, renewers: tuple[str, ...] = ()) -> Any:
    request = CreateDelegationTokenRequest
    named = [request.CreatableRenewers(principal_type="User", principal_name=r) for r in renewers]
    return asked(one, user, request(renewers=named, max_lifetime_ms=lifetime_ms), 3)


def described(one: Member, user: str) -> dict[str, dict[str, Any]]:
    answer = asked(one, user, DescribeDelegationTokenRequest(owners=None), 3)
    assert answer.error_code == 0
    return {
        t.token_id: {
            "hmac": bytes(t.hmac),
            "owner": (t.principal_type, t.principal_name),
            "requester": (t.token_requester_principal_type, t.token_requester_principal_name),
            "times": (t.issue_timestamp, t.expiry_timestamp, t.max_timestamp),
            "renewers": [(r.principal_type, r.principal_name) for r in t.renewers],
        }
        for t in answer.tokens
    }


def same_everywhere(members: dict[str, Member], user: str, token_id: str, there: bool) -> None:
    def agreed() -> bool:
        seen = [described(one, user).get(token_id) for one in members.values()]
        return seen[0] == seen[1] and (seen[0] is not None) == there

    eventually(agreed, "both brokers describe the token alike", within_s=20)


@pytest.mark.parametrize(
    ("maker", "other", "mechanism"),
    [(HIGHWATER, APACHE, "SCRAM-SHA-256"), (APACHE, HIGHWATER, "SCRAM-SHA-512")],
)
def test_a_token_is_its_owners_on_every_broker(
    members: dict[str, Member],
    tmp_path: Path,
    apache_tool: Callable[..., Any],
    maker: str,
    other: str,
    mechanism: str,
) -> None:
    """The Java client logs in by it, and is told that it may not ask for tokens so."""
    made = create(members[maker], "alice", renewers=("bob",))
    assert made.error_code == 0
    same_everywhere(members, "alice", made.token_id, True)
    assert made.token_id in described(members[other], "bob")
    login = by_token(made, mechanism)
    for kind, one in members.items():
        shown = java(apache_tool, tmp_path, one, login, "--describe")
        assert "DelegationTokenDisabledException" not in shown
        assert "not allowed" in shown, (kind, shown)
    at_once = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    assert asked(members[other], "bob", at_once).error_code == 0
    same_everywhere(members, "alice", made.token_id, False)
    refused = "Authentication failed during authentication due to invalid credentials"
    assert refused in java(apache_tool, tmp_path, members[HIGHWATER], login, "--describe")


def test_a_wrong_password_of_a_token(
    members: dict[str, Member], tmp_path: Path, apache_tool: Callable[..., Any]
) -> None:
    one, made = members[HIGHWATER], create(members[HIGHWATER], "alice")
    login = by_token(made, "SCRAM-SHA-256", password="d3Jvbmc=")
    assert "Authentication failed" in java(apache_tool, tmp_path, one, login, "--describe")
    assert len(one.broker.lines("authentication by SCRAM-SHA-256 failed")) >= 1
    assert b64encode(made.hmac).decode() not in one.broker.output


def by_token(made: Any, mechanism: str, password: str = "") -> str:
    word = password or b64encode(made.hmac).decode()
    login = f'username="{made.token_id}" password="{word}" tokenauth="true"'
    return f"sasl.mechanism={mechanism}\nsasl.jaas.config={SCRAM} {login};\n"


def java(tool: Callable[..., Any], folder: Path, one: Member, login: str, *arguments: str) -> str:
    file = folder / "client.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\n{login}")
    where = ["--bootstrap-server", f"127.0.0.1:{one.sasl}", "--command-config", str(file)]
    done = tool(TOOL, [*where, *arguments])
    return str(done.stdout + done.stderr)


def test_kafkas_own_tool(
    members: dict[str, Member], tmp_path: Path, apache_tool: Callable[..., Any]
) -> None:
    login = f'{PLAIN} username="carol" password="carol-s3cret";'

    def told(*arguments: str) -> str:
        as_carol = f"sasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        return java(apache_tool, tmp_path, members[HIGHWATER], as_carol, *arguments)

    renewer = ("--renewer-principal", "User:bob")
    made = told("--create", "--max-life-time-period", "-1", *renewer)
    hmac = re.search(r"\s([A-Za-z0-9+/]{86}==)\s", made)
    assert hmac, made
    assert "User:carol" in made
    named, mine = ("--hmac", hmac[1]), ("--owner-principal", "User:carol")
    assert "expiry date" in told("--renew", "--renew-time-period", "-1", *named)
    assert hmac[1] in told("--describe", *mine)
    assert "expiry date" in told("--expire", "--expiry-time-period", "-1", *named)
    assert hmac[1] not in told("--describe", *mine)


def test_both_refuse_alike(members: dict[str, Member]) -> None:
    made = create(members[HIGHWATER], "alice")
    same_everywhere(members, "alice", made.token_id, True)
    request = CreateDelegationTokenRequest
    group = request.CreatableRenewers(principal_type="Group", principal_name="all")
    cases: list[tuple[str, str, Any, int]] = [
        ("create over PLAINTEXT", "", request(renewers=[], max_lifetime_ms=-1), 3),
        ("a renewer that is no user", "alice", request(renewers=[group], max_lifetime_ms=-1), 3),
        ("renew, not its own", "carol", RenewDelegationTokenRequest(hmac=made.hmac), 2),
        ("renew, no token", "alice", RenewDelegationTokenRequest(hmac=b"none"), 2),
        ("expire, not its own", "carol", ExpireDelegationTokenRequest(hmac=made.hmac), 2),
        ("expire, no token", "alice", ExpireDelegationTokenRequest(hmac=b"none"), 1),
        ("renew over PLAINTEXT", "", RenewDelegationTokenRequest(hmac=b"none"), 0),
        ("expire over PLAINTEXT", "", ExpireDelegationTokenRequest(hmac=b"none"), 0),
        ("describe over PLAINTEXT", "", DescribeDelegationTokenRequest(owners=None), 1),
        ("describe nobody's", "alice", DescribeDelegationTokenRequest(owners=[]), 0),
    ]
    for name, user, sent, version in cases:
        answers = [asked(one, user, sent, version) for one in members.values()]
        codes = [ErrorCode(answer.error_code).name for answer in answers]
        assert codes[0] == codes[1], name
        assert str(answers[0]) == str(answers[1]), name
        assert (codes[0] == "NONE") == (name == "describe nobody's"), name


def allow(
    members: dict[str, Member], user: str, kind: ResourceType, name: str, what: Operation
) -> None:
    """By the super user; it counts on a broker when that has followed."""
    rule = CreateAclsRequest.AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=3, principal=f"User:{user}",
        host="*", operation=what, permission_type=Permission.ALLOW,
    )  # fmt: skip
    answer = asked(members[HIGHWATER], "", CreateAclsRequest(creations=[rule]), 3)
    assert [result.error_code for result in answer.results] == [0]


def test_rights_for_the_tokens_of_others(members: dict[str, Member]) -> None:
    """Each right by itself counts on both brokers, and is missing on both before."""
    request = CreateDelegationTokenRequest
    for_alice = request(
        owner_principal_type="User", owner_principal_name="alice", renewers=[], max_lifetime_ms=-1
    )
    mine = create(members[HIGHWATER], "alice")
    same_everywhere(members, "alice", mine.token_id, True)

    def codes() -> set[str]:
        answers = [asked(one, "carol", for_alice, 3) for one in members.values()]
        return {ErrorCode(answer.error_code).name for answer in answers}

    def shown(user: str) -> list[bool]:
        return [mine.token_id in described(one, user) for one in members.values()]

    assert codes() == {"DELEGATION_TOKEN_AUTHORIZATION_FAILED"}
    assert (shown("bob"), shown("carol")) == ([False, False], [False, False])
    allow(members, "carol", ResourceType.USER, "User:alice", Operation.CREATE_TOKENS)
    eventually(lambda: codes() == {"NONE"}, "carol makes tokens for alice", within_s=20)
    assert shown("carol") == [False, False]
    allow(members, "carol", ResourceType.USER, "User:alice", Operation.DESCRIBE_TOKENS)
    eventually(lambda: all(shown("carol")), "carol sees alice's tokens", within_s=20)
    allow(members, "bob", ResourceType.DELEGATION_TOKEN, mine.token_id, Operation.DESCRIBE)
    eventually(
        lambda: all(shown("bob")), "bob sees one token of alice", lambda: shown("bob"), within_s=20
    )
    made = asked(members[APACHE], "carol", for_alice, 3)
    named = (made.principal_name, made.token_requester_principal_name)
    assert named == ("alice", "carol")
    same_everywhere(members, "alice", made.token_id, True)
    assert not any(made.token_id in described(one, "bob") for one in members.values())


def test_the_controller_removes_what_has_expired(members: dict[str, Member]) -> None:
    for maker in members.values():
        made = create(maker, "alice", lifetime_ms=1500)
        assert made.error_code == 0
        same_everywhere(members, "alice", made.token_id, False)
