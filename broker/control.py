"""What the handlers of the controller's requests share."""

from __future__ import annotations

from broker.context import Context
from highwater.common.errors import ApiError, ErrorCode

UNKNOWN_BROKER_EPOCH = -1


def check_broker_epoch(ctx: Context, epoch: int) -> None:
    """Raises ApiError(STALE_BROKER_EPOCH) for a request meant for an earlier life of this broker.

    A request for a later epoch than we know of is let through: our own registration's answer may
    still be on its way (KIP-380).  -1 comes from controllers that know no broker epochs.
    """
    if epoch != UNKNOWN_BROKER_EPOCH and epoch < ctx.services.broker_epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
