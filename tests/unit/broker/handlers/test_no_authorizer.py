"""A broker without an authorizer answers requests about access rules in Kafka's words."""

from __future__ import annotations

from typing import Any

from highwater.broker.handlers import create_acls, delete_acls, describe_acls
from highwater.kafka.errors import ErrorCode
from highwater.kafka.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.unit.broker.handlers.conftest import in_broker

_RULE = {
    "resource_type": 2, "resource_name": "orders", "principal": "User:bob", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
_FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


@in_broker()
async def test_kafkas_own_words(b: Any) -> None:
    described = await b.ask(describe_acls, 1, DescribeAclsRequest(**_FILTER, pattern_type_filter=1))
    created = await b.ask(
        create_acls, 1,
        CreateAclsRequest(
            creations=[CreateAclsRequest.AclCreation(**_RULE, resource_pattern_type=3)]
        ),
    )  # fmt: skip
    deleted = await b.ask(
        delete_acls, 1,
        DeleteAclsRequest(
            filters=[DeleteAclsRequest.DeleteAclsFilter(**_FILTER, pattern_type_filter=1)]
        ),
    )  # fmt: skip
    answers = [described, *created.results, *deleted.filter_results]
    assert {answer.error_code for answer in answers} == {ErrorCode.SECURITY_DISABLED}
    assert [answer.error_message for answer in answers] == [
        "No Authorizer is configured on the broker",
        "No Authorizer is configured.",
        "No Authorizer is configured.",
    ]
