"""A broker that is about to stop first asks the controller to move its leaders (KafkaServer's
controlledShutdown).

The controller answers with the partitions that it could not move (no other live member in their
ISR).  The broker asks again, controlled.shutdown.max.retries times, and then goes anyway.  The
records of those partitions are flushed and safe on its disk, but no broker serves them until it is
back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from highwater.broker.membership.peer_link import Link
from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.wire.controller_messages import (
    CONTROLLED_SHUTDOWN_VERSION,
    ControlledShutdownRequest,
)

if TYPE_CHECKING:
    from highwater.broker.services import Services

log = logging.getLogger(__name__)


async def leave_cluster(services: Services) -> None:
    """Returns when this broker leads no partition, or when waiting longer is pointless."""
    config = services.config
    for attempt in range(config.controlled_shutdown_max_retries + 1):
        if attempt:
            await trio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
        if services.session is None or services.session.expired:
            log.warning("controlled shutdown without ZooKeeper: leaders stay until they are missed")
            return
        try:
            remaining = await _ask(services)
        except (OSError, ApiError) as e:
            log.info("controlled shutdown, attempt %d: %s", attempt + 1, e)
            continue
        if not remaining:
            return
        log.info("controlled shutdown: %d partitions could not be moved", remaining)


async def _ask(services: Services) -> int:
    """The number of partitions still led here."""
    controller = services.metadata.controller_id
    if controller == services.broker_id:
        left = await services.controller.controlled_shutdown(
            services.broker_id, services.broker_epoch
        )
        return len(left)
    link = Link(
        services.config,
        services.world,
        services.metadata,
        controller,
        "shutdown",
        timeout_ms=services.config.controller_socket_timeout_ms,
    )
    request = ControlledShutdownRequest(
        broker_id=services.broker_id, broker_epoch=services.broker_epoch
    )
    try:
        answer = await link.call(request, CONTROLLED_SHUTDOWN_VERSION)
    finally:
        link.close()
    if answer.error_code:
        raise ApiError(ErrorCode(answer.error_code))
    return len(answer.remaining_partitions)
