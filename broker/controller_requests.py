"""What the handlers of the controller's requests share."""

from __future__ import annotations

import logging

from highwater.broker.context import Context
from highwater.kafka.errors import ApiError, ErrorCode

log = logging.getLogger(__name__)

UNKNOWN_BROKER_EPOCH = -1


def check_broker_epoch(ctx: Context, epoch: int) -> None:
    """Raises ApiError(STALE_BROKER_EPOCH) for a request meant for an earlier life of this broker.

    A request for a later epoch than we know of is let through: our own registration's answer may
    still be on its way (KIP-380).  -1 comes from controllers that know no broker epochs.
    """
    if epoch != UNKNOWN_BROKER_EPOCH and epoch < ctx.services.broker_epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH)


def overtaken(ctx: Context, controller_epoch: int) -> bool:
    """Whether the controller has sent something since over a newer connection.

    It gave this one up, and what was still on its way here is older than what came since: taken
    now, the metadata would name a leader of before until the next change (Kafka takes it), and a
    topic of the same name would be deleted again.  The connection is closed without an answer.  A
    controller that still uses it (connections may be accepted in another order than they were
    opened) sends again over a new one.
    """
    newest = ctx.services.controller_connection
    this = controller_epoch, ctx.connection_number
    if controller_epoch < newest[0]:
        return False  # it is refused for its epoch
    if this < newest:
        log.info("%s: a request of the controller came too late", ctx.connection_id)
        return True
    ctx.services.controller_connection = this
    return False
