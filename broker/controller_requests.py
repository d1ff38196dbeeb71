"""Asks the fence (`membership.controller_fence`) about the controller's requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from highwater.broker.context import Context
from highwater.broker.membership.controller_fence import Overtaken, Sender
from highwater.kafka.types import BrokerEpoch, ControllerEpoch

log = logging.getLogger(__name__)


def admission(ctx: Context, request: Any) -> Callable[[], None]:
    """A function that asks the fence about this request at each call; raises as `admit` does."""
    sender = Sender(
        ControllerEpoch(request.controller_epoch),
        BrokerEpoch(request.broker_epoch),
        ctx.connection_number,
    )
    services = ctx.services

    def admit() -> None:
        try:
            services.fence.admit(sender, services.broker_epoch)
        except Overtaken:
            log.info("%s: a request of the controller came too late", ctx.connection_id)
            raise

    return admit
