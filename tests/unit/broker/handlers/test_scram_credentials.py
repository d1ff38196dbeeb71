"""SCRAM credentials through the handlers, in ZooKeeper, and in a broker's memory."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from types import SimpleNamespace
from typing import Any

from highwater.broker.handlers import (
    alter_client_quotas,
    alter_user_scram_credentials,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from highwater.broker.settings.client_quotas import read_entity
from highwater.broker.settings.config_changes import DynamicConfigWatcher, TopicConfigs
from highwater.kafka.errors import ErrorCode
from highwater.kafka.sanitizer import desanitize
from highwater.kafka.security.scram_users import ScramUsers
from highwater.kafka.wire.messages import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)
from tests.unit.broker.handlers.conftest import in_broker

SHA_256, SHA_512 = 1, 2
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SALTED = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)


async def alter(b: Any, *upsertions: tuple[str, int, int], delete: Any = ()) -> dict[str, str]:
    b.services.candidate = SimpleNamespace(active=True)
    request = AlterUserScramCredentialsRequest
    answer = await b.ask(
        alter_user_scram_credentials,
        0,
        request(
            deletions=[request.ScramCredentialDeletion(name=n, mechanism=m) for n, m in delete],
            upsertions=[
                request.ScramCredentialUpsertion(
                    name=n, mechanism=m, iterations=i, salt=SALT, salted_password=SALTED
                )
                for n, m, i in upsertions
            ],
        ),
    )
    return {r.user: ErrorCode(r.error_code).name for r in answer.results}


async def described(b: Any, *names: str) -> dict[str, tuple[str, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest
    asked = [request.UserName(name=n) for n in names] if names else None
    answer = await b.ask(describe_user_scram_credentials, 0, request(users=asked))
    assert answer.error_code == 0
    return {
        r.user: (
            ErrorCode(r.error_code).name,
            [(c.mechanism, c.iterations) for c in r.credential_infos],
        )
        for r in answer.results
    }


def follower(b: Any, users: ScramUsers) -> DynamicConfigWatcher:
    """Stands for the broker's own watcher."""

    def apply(path: str, config: Any) -> None:
        kind, _, name = path.partition("/")
        if kind == "users":
            users.configured(desanitize(name), config)

    return DynamicConfigWatcher(b.zk, TopicConfigs(lambda topic, config: None), apply)


@in_broker()
async def test_credentials_are_set_described_and_taken_away(b: Any) -> None:
    assert await described(b) == {}
    both = ("a b,", SHA_256, 4096), ("a b,", SHA_512, 8192)
    assert await alter(b, *both, ("carol", SHA_512, 16384)) == {"a b,": "NONE", "carol": "NONE"}
    stored = await read_entity(b.zk, "users/a%20b%2C")
    assert stored["SCRAM-SHA-256"] == (  # RFC 7677's example
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,"
        "stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert await described(b) == {
        "a b,": ("NONE", [(SHA_256, 4096), (SHA_512, 8192)]),
        "carol": ("NONE", [(SHA_512, 16384)]),
    }
    users = ScramUsers()
    await follower(b, users).load()
    assert users.get("SCRAM-SHA-512", "carol") is not None
    assert await alter(b, delete=[("a b,", SHA_256)]) == {"a b,": "NONE"}
    assert await described(b, "a b,") == {"a b,": ("NONE", [(SHA_512, 8192)])}


@in_broker()
async def test_what_is_asked_for_wrongly_has_kafkas_errors(b: Any) -> None:
    assert await alter(
        b,
        ("", SHA_256, 4096),
        ("few", SHA_256, 4095),
        ("many", SHA_256, 16385),
        ("unknown", 3, 4096),
        ("twice", SHA_256, 4096),
        ("twice", SHA_256, 4096),
        ("both", SHA_256, 4096),
        ("good", SHA_256, 4096),
        delete=[("both", SHA_256), ("absent", SHA_512), ("odd", 0)],
    ) == {
        "": "UNACCEPTABLE_CREDENTIAL",
        "few": "UNACCEPTABLE_CREDENTIAL",
        "many": "UNACCEPTABLE_CREDENTIAL",
        "unknown": "UNSUPPORTED_SASL_MECHANISM",
        "twice": "DUPLICATE_RESOURCE",
        "both": "DUPLICATE_RESOURCE",
        "good": "NONE",
        "absent": "RESOURCE_NOT_FOUND",
        "odd": "UNSUPPORTED_SASL_MECHANISM",
    }
    assert set(await described(b)) == {"good"}
    assert await described(b, "good", "good", "absent", "") == {
        "good": ("DUPLICATE_RESOURCE", []),
        "absent": ("RESOURCE_NOT_FOUND", []),
        "": ("RESOURCE_NOT_FOUND", []),
    }
    b.services.candidate = SimpleNamespace(active=False)
    request = AlterUserScramCredentialsRequest
    deletion = request.ScramCredentialDeletion(name="good", mechanism=SHA_256)
    answer = await b.ask(
        alter_user_scram_credentials, 0, request(deletions=[deletion], upsertions=[])
    )
    assert ErrorCode(answer.results[0].error_code) is ErrorCode.NOT_CONTROLLER


@in_broker()
async def test_a_users_quotas_and_credentials_leave_each_other_alone(b: Any) -> None:
    entry = AlterClientQuotasRequest.EntryData
    quota = entry(
        entity=[entry.EntityData(entity_type="user", entity_name="carol")],
        ops=[entry.OpData(key="producer_byte_rate", value=1000.0, remove=False)],
    )
    await alter(b, ("carol", SHA_256, 4096))
    request = AlterClientQuotasRequest(entries=[quota], validate_only=False)
    assert (await b.ask(alter_client_quotas, 1, request)).entries[0].error_code == 0
    await alter(b, ("carol", SHA_512, 4096))
    assert set(await read_entity(b.zk, "users/carol")) == {
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "producer_byte_rate",
    }
    all_quotas = DescribeClientQuotasRequest(components=[], strict=False)
    [found] = (await b.ask(describe_client_quotas, 1, all_quotas)).entries
    assert [(value.key, value.value) for value in found.values] == [("producer_byte_rate", 1000.0)]
