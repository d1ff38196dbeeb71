"""DescribeConfigs, API 32, v0-4: the properties of topics and of this broker, with their sources.

A broker answers for itself alone.  v0 says only whether a value is a default, v1 its source and
synonyms, v3 its type and, where the client asks for it, its documentation.  Sensitive values are
null, and so are those of names that Kafka does not know.  Other brokers ask by one name more
how far this one follows changes (`membership/agreement.FOLLOWED`).
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin import configs
from highwater.broker.admin.configs import Entry, Source
from highwater.broker.admin.mutations import error_names
from highwater.broker.context import Access, Api, Context, Reply
from highwater.broker.membership.agreement import FOLLOWED
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.messages import DescribeConfigsResponse

API = Api(
    key=32,
    name="DescribeConfigs",
    versions=(0, 4),
    access=Access(
        each=configs.needs(Operation.DESCRIBE_CONFIGS), items=("resources",), answers="results"
    ),
)

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult
_Synonym = _Config.DescribeConfigsSynonym


async def handle(ctx: Context, request: Any) -> Reply:
    results, codes = [], []
    for resource in request.resources:
        code, message, entries = ErrorCode.NONE, None, []
        try:
            entries = await configs.describe(
                ctx.services, resource.resource_type, resource.resource_name
            )
        except ApiError as e:
            code, message = e.code, e.detail
        keys = resource.configuration_keys
        if FOLLOWED in (keys or ()) and resource.resource_type == configs.ResourceType.BROKER:
            entries.append(configs.followed_entry(ctx.services.followed()))
        results.append(
            _Result(
                error_code=int(code),
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    _config(e, bool(request.include_synonyms), bool(request.include_documentation))
                    for e in entries
                    if not keys or e.name in keys
                ],
            )
        )
        codes.append(code)
    return Response(DescribeConfigsResponse(results=results), error_names=error_names(codes))


def _config(entry: Entry, synonyms: bool, documentation: bool) -> Any:
    return _Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.source == Source.DEFAULT_CONFIG,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        documentation=entry.documentation if documentation or entry.documentation == "" else None,
        synonyms=[
            _Synonym(name=s.name, value=s.value, source=int(s.source))
            for s in (entry.synonyms if synonyms else ())
        ],
    )


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    results = [
        _Result(
            error_code=int(code),
            error_message=code.name,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        for resource in request.resources
    ]
    return Response(DescribeConfigsResponse(results=results), error_names=(code.name,))
