"""UpdateFeatures, API 57, v0-2: raises or lowers the levels of features, all or none (KIP-584).

Any broker does it.  The levels are limits in ZooKeeper, which the controller sends to all brokers;
the answer waits until every broker shows them.  An error is one of the whole request, and then v0
and v1 have no results.  In v0 nothing can be lowered, as in Apache Kafka since 3.3.
"""

from __future__ import annotations

from typing import Any

from highwater.broker.admin import feature_updates
from highwater.broker.admin.change_waits import ChangeWait
from highwater.broker.admin.feature_updates import Update, UpgradeType
from highwater.broker.context import Access, Api, Context, Delayed, Reply, cluster
from highwater.broker.membership.agreement import about_features
from highwater.broker.request.response import Response
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.security.acls import Operation
from highwater.kafka.wire.messages import UpdateFeaturesResponse

API = Api(
    key=57,
    name="UpdateFeatures",
    versions=(0, 2),
    access=Access(whole=(cluster(Operation.ALTER),)),
)

FIRST_WITH_TYPE = 1


async def handle(ctx: Context, request: Any) -> Reply:
    typed = ctx.version >= FIRST_WITH_TYPE
    updates = [
        Update(u.feature, u.max_version_level, u.upgrade_type if typed else UpgradeType.UPGRADE)
        for u in request.feature_updates
    ]
    services = ctx.services
    try:
        levels = feature_updates.checked(updates, dict(services.metadata.features))
        await feature_updates.check_registered(services.zk, levels)
        if levels and not request.validate_only:
            await feature_updates.write(services.zk, levels)
    except ApiError as e:
        return _answer([], e.code, e.detail)
    answer = _answer(updates)
    if not levels or request.validate_only:
        return answer
    question = about_features(levels, lambda: services.metadata.features)
    return Delayed(ChangeWait(services, [question], answer))


def _answer(
    updates: list[Update], code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> Response:
    results = [
        # Apache Kafka has that message where there is no error, too
        UpdateFeaturesResponse.UpdatableFeatureResult(
            feature=u.feature, error_code=0, error_message="NONE"
        )
        for u in updates
    ]
    answer = UpdateFeaturesResponse(error_code=int(code), error_message=message, results=results)
    return Response(answer, error_names=() if code is ErrorCode.NONE else (code.name,))


def error_response(ctx: Context, request: Any, code: ErrorCode) -> Response:
    return _answer([], code)
