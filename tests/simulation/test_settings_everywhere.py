"""Whoever has been told that access rules, users, quotas, tokens or a broker's configuration have
changed finds the change on every living broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import trio

from highwater.broker.services import Services
from highwater.kafka.client.connection import ClientConnection
from highwater.kafka.config import Config
from highwater.kafka.errors import ErrorCode
from highwater.kafka.security.acls import Operation, ResourceType
from highwater.kafka.security.jaas import PLAIN
from highwater.kafka.security.links import open_security
from highwater.kafka.wire.messages import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    IncrementalAlterConfigsRequest,
)
from highwater.kafka.wire.token_messages import (
    CreateDelegationTokenRequest,
    ExpireDelegationTokenRequest,
)
from highwater.simulation.cluster import PORT, Shape, SimCluster
from highwater.world.sim import Kernel, SimWorld, run_simulation

ROUNDS = 12
TOLD_WITHIN_S = 1.5
"""One second for the brokers, and some for the request itself."""
SUPER = "User:broker"


@dataclass(frozen=True, slots=True)
class Authorized(Shape):
    def config(self, broker_id: int, host: str) -> Config:
        plain = Shape.config(self, broker_id, host)
        jaas = f'{PLAIN} required username="broker" password="secret" user_broker="secret";'
        return replace(
            plain,
            listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
            originals={
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.jaas.config": jaas,
                "super.users": SUPER,
                "delegation.token.secret.key": "hush",
            },
        )


class Administrator:
    """Asks one broker for changes, and looks at what all of them apply."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        host = cluster.simulation.add_host("client")
        plain = cluster.simulation.start(host)
        config = cluster.shape.config(9, "client")
        self.world = cast("SimWorld", open_security(config, plain).brokers)
        self.longest_s = 0.0

    async def ask(self, broker_id: int, request: Any, version: int) -> Any:
        connection = await ClientConnection.open(
            self.world.network, f"broker-{broker_id}", PORT, "administrator"
        )
        began = trio.current_time()
        answer = await connection.call(request, version, 30)
        self.longest_s = max(self.longest_s, trio.current_time() - began)
        connection.close()
        return answer

    def on_all(self, holds: Callable[[Services], bool]) -> list[int]:
        """The living brokers on which it does not hold."""
        nodes = self.cluster.nodes.values()
        return [n.id for n in nodes if n.services is not None and not holds(n.services)]

    def controller(self) -> int:
        found = [
            n.id for n in self.cluster.nodes.values() if n.services and n.services.is_controller
        ]
        return found[0]

    async def rules(self, number: int) -> None:
        topic = f"topic-{number}"

        def allowed(services: Services) -> bool:
            acls = services.authorizer
            assert acls is not None
            return acls.allows("User:a", "h", Operation.READ, ResourceType.TOPIC, topic)

        rule = CreateAclsRequest.AclCreation(
            resource_type=2, resource_name=topic, resource_pattern_type=3 + number % 2,
            principal="User:a", host="*", operation=3, permission_type=3,
        )  # fmt: skip
        asked = 1 + number % 3
        answer = await self.ask(asked, CreateAclsRequest(creations=[rule]), 2)
        assert answer.results[0].error_code == 0
        assert self.on_all(allowed) == []
        meant = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=2, resource_name_filter=topic, pattern_type_filter=1,
            principal_filter=None, host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        answer = await self.ask(asked, DeleteAclsRequest(filters=[meant]), 2)
        assert len(answer.filter_results[0].matching_acls) == 1
        assert self.on_all(lambda services: not allowed(services)) == []

    async def users(self, number: int, on: Sequence[int] = (1, 2, 3)) -> None:
        user = f"user-{number}"
        credential = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"x" * 32
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[credential])
        answer = await self.ask(self.controller(), request, 0)
        assert answer.results[0].error_code == 0
        known = [
            n.broker.security.users.get("SCRAM-SHA-256", user)
            for n in (self.cluster.nodes[broker_id] for broker_id in on)
            if n.broker is not None
        ]
        assert all(known), known

    async def quotas(self, number: int) -> None:
        entry = AlterClientQuotasRequest.EntryData
        request = AlterClientQuotasRequest(
            entries=[
                entry(
                    entity=[entry.EntityData(entity_type="client-id", entity_name=f"c-{number}")],
                    ops=[entry.OpData(key="producer_byte_rate", value=1000.0, remove=False)],
                )
            ],
            validate_only=False,
        )
        answer = await self.ask(1 + number % 3, request, 0)
        assert answer.entries[0].error_code == 0
        assert self.on_all(lambda s: s.quotas.produce.most("u", f"c-{number}") is not None) == []

    async def tokens(self, number: int) -> None:
        asked = 1 + number % 3
        request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
        made = await self.ask(asked, request, 2)
        assert made.error_code == 0, ErrorCode(made.error_code)
        hmac = bytes(made.hmac)
        assert self.on_all(lambda s: s.tokens.tokens.by_hmac(hmac) is not None) == []
        ended = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
        assert (await self.ask(1 + (number + 1) % 3, ended, 2)).error_code == 0
        assert self.on_all(lambda s: s.tokens.tokens.by_hmac(hmac) is None) == []

    async def brokers(self, number: int) -> None:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        size = 2000 + number
        request = IncrementalAlterConfigsRequest(
            resources=[
                resource(
                    resource_type=4,
                    resource_name="",
                    configs=[
                        resource.AlterableConfig(
                            name="message.max.bytes", config_operation=0, value=str(size)
                        )
                    ],
                )
            ],
            validate_only=False,
        )
        answer = await self.ask(1 + number % 3, request, 0)
        assert answer.responses[0].error_code == 0
        assert self.on_all(lambda s: s.config.message_max_bytes == size) == []


def in_cluster(scenario: Callable[[Administrator], Awaitable[None]]) -> None:
    async def main(kernel: Kernel) -> None:
        async with trio.open_nursery() as nursery:
            cluster = SimCluster(kernel, Authorized(control_plane=False), nursery)
            for broker_id in cluster.nodes:
                cluster.start(broker_id)
            with trio.fail_after(300):
                while cluster.whole() is not None:
                    await trio.sleep(0.1)
                await scenario(Administrator(cluster))
            assert cluster.rules.violation is None
            nursery.cancel_scope.cancel()

    run_simulation(1, main)


def test_who_was_told_of_a_change_finds_it_on_every_broker() -> None:
    async def scenario(administrator: Administrator) -> None:
        a = administrator
        for change in (a.rules, a.users, a.quotas, a.tokens, a.brokers):
            for number in range(ROUNDS):
                await change(number)
        assert a.longest_s < TOLD_WITHIN_S

    in_cluster(scenario)


def test_a_broker_that_is_cut_off_holds_up_no_answer() -> None:
    async def scenario(administrator: Administrator) -> None:
        a, fabric = administrator, administrator.cluster.simulation.fabric
        nodes = a.cluster.nodes
        controller, other = a.controller(), next(n for n in nodes if n != a.controller())
        for there in (nodes[controller], nodes[6 - controller - other]):
            fabric.cut(there.host, nodes[other].host)
            fabric.cut(nodes[other].host, there.host)
        await a.users(0, [controller])
        assert 0.5 < a.longest_s < TOLD_WITHIN_S

    in_cluster(scenario)
