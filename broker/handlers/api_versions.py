"""ApiVersions, API 18, v0-4: the APIs that this broker answers, with their versions.

A client sends it first on each connection, in the newest version that it knows.  Where that is too
new, the answer is in v0 with UNSUPPORTED_VERSION and this API's own range, and the client asks
again (KIP-511).  From v3 on the request names the client's software.  The list is made from the
handler modules, without the versions that need a feature that is not in use (`kafka/features.py`),
and is the same on every listener.

From v3 on the answer names the features that this program supports, and the levels that all brokers
use, with their epoch (KIP-584).  A broker that has just started knows these levels when the
controller has named them, and answers then: a client keeps the list as long as its connection.
Brokers, which ask in v0, are answered at once.  v3 leaves out supported features, all of which
begin at level 0: older clients do not understand such a level (KAFKA-17011).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from highwater.broker.context import OPEN, Api, Context, Delayed, Reply
from highwater.broker.first_news import FirstNewsWait
from highwater.broker.request.response import Response
from highwater.kafka.errors import ErrorCode
from highwater.kafka.features import KAFKAS, Levels, offered
from highwater.kafka.wire.messages import ApiVersionsResponse

API = Api(key=18, name="ApiVersions", versions=(0, 4), access=OPEN)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_WITH_SOFTWARE = 3
FIRST_WITH_LEVEL_0 = 4


def handle(ctx: Context, request: Any) -> Reply:
    if ctx.version >= FIRST_WITH_SOFTWARE and not (
        _SOFTWARE.fullmatch(request.client_software_name or "")
        and _SOFTWARE.fullmatch(request.client_software_version or "")
    ):
        return error_response(ctx, request, ErrorCode.INVALID_REQUEST)
    if ctx.version >= FIRST_WITH_SOFTWARE and not ctx.services.metadata.told:
        return Delayed(FirstNewsWait(ctx, lambda: _answer(ctx)))
    return _answer(ctx)


def _answer(ctx: Context) -> Response:
    metadata = ctx.services.metadata
    return Response(parts=(_encoded(ctx.version, metadata.features, metadata.features_epoch),))


@lru_cache
def _encoded(version: int, features: Levels, epoch: int) -> bytes:
    from highwater.broker.handlers import HANDLERS  # which lists this module, too

    ranges = {m.API.key: offered(m.API.key, m.API.versions, features) for m in HANDLERS}
    answer = ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=found[0], max_version=found[1])
            for key, found in sorted(ranges.items())
            if found is not None
        ],
        supported_features=_supported() if version >= FIRST_WITH_LEVEL_0 else [],
        finalized_features_epoch=epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=name, max_version_level=level, min_version_level=level
            )
            for name, level in features
            if name in KAFKAS
        ],
    )
    return bytes(answer.encode(version=version))


def _supported() -> list[Any]:
    return [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=most)
        for name, most in KAFKAS.items()
    ]


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    answer = ApiVersionsResponse(error_code=int(code), api_keys=[])
    return Response(answer, error_names=(code.name,))
