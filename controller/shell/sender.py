"""Sends requests in strict order: each broker has one connection and one bounded queue.

A broker must see the controller's requests in the order of the decisions.  So each request waits
for the answer to the one before, and a request that failed is sent again until it is answered or
the broker is removed.  Sending twice is harmless: brokers compare leader epochs.

A broker that does not keep up must delay neither the controller nor the others.  When its queue is
full, the queue is dropped, and the machine is asked to send that broker everything again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import trio

from highwater.base.event_loop import in_steps
from highwater.controller.rules.effects import SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata
from highwater.controller.rules.events import (
    ChannelOverflowed,
    Event,
    LeaderAndIsrAnswered,
    StopReplicaAnswered,
    UpdateMetadataAnswered,
)
from highwater.controller.shell import encoding as messages
from highwater.kafka.client.reconnecting import Reconnecting
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire import controller_messages as control
from highwater.kafka.wire.codec import BadMessage, decode_response

if TYPE_CHECKING:
    from highwater.controller.rules.effects import Send
    from highwater.kafka.types import BrokerEpoch, BrokerId, BrokerInfo, ControllerEpoch, Endpoint
    from highwater.world.api import Network

log = logging.getLogger("controller")

QUEUE_LIMIT = 1000
_BACKOFF_S = 0.1
_LEADER_AND_ISR, _STOP_REPLICA, _UPDATE_METADATA = 4, 5, 6


@dataclass(frozen=True, slots=True)
class SenderSettings:
    broker_id: BrokerId
    epoch: ControllerEpoch
    channel_listener: str
    """The listener for the requests: the control plane's, or the inter-broker one."""
    inter_broker_listener: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class _Item:
    api_key: int
    version: int
    body: Callable[[], messages.Steps]
    answered: Callable[[Any], Event]


class Senders:
    """All channels of one controller term; `run` holds their nursery."""

    def __init__(
        self,
        settings: SenderSettings,
        network: Network,
        post: Callable[[Event], None],
        permission: Callable[[], Awaitable[None]],
    ) -> None:
        """`permission` is awaited before each request is sent."""
        self._settings = settings
        self._permission = permission
        self._network = network
        self._post = post
        self._channels: dict[BrokerId, _Channel] = {}

    @property
    def queued(self) -> int:
        """ControllerChannelManager's TotalQueueSize."""
        return sum(len(c.queue) for c in self._channels.values())

    def add(self, broker: BrokerInfo, nursery: trio.Nursery) -> None:
        self.remove(broker.id)
        endpoint = channel_endpoint(broker, self._settings)
        if endpoint is None:
            log.error(
                "broker %d has no listener %s: it gets no requests",
                broker.id,
                self._settings.channel_listener,
            )
            return
        channel = _Channel(
            broker.id, endpoint, self._settings, self._network, self._post, self._permission
        )
        self._channels[broker.id] = channel
        nursery.start_soon(channel.run)

    def remove(self, broker_id: BrokerId) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.scope.cancel()

    def send(self, effect: Send) -> None:
        match effect:
            case SendLeaderAndIsr():
                for leader_and_isr in messages.divided(effect):
                    self._put(effect.broker_id, self._leader_and_isr(leader_and_isr))
            case SendStopReplica():
                for stop in messages.divided(effect):
                    self._put(effect.broker_id, self._stop_replica(stop))
            case SendUpdateMetadata(brokers):
                s = self._settings
                for update in messages.divided_by_topics(effect):
                    shared = messages.UpdateMetadataBody(update, s.broker_id, s.epoch)
                    gone = update.gone
                    for broker_id, broker_epoch in brokers:
                        item = _update_metadata(shared, broker_id, broker_epoch, gone)
                        self._put(broker_id, item)
            case _:
                assert_never(effect)

    def _leader_and_isr(self, effect: SendLeaderAndIsr) -> _Item:
        s = self._settings
        return _Item(
            _LEADER_AND_ISR,
            control.LEADER_AND_ISR_VERSION,
            lambda: messages.leader_and_isr(effect, s.broker_id, s.epoch, s.inter_broker_listener),
            lambda r: LeaderAndIsrAnswered(
                effect.broker_id,
                effect.broker_epoch,
                r.error_code,
                _errors(r.partition_errors),
                {known.topic_name: known.topic_id.bytes for known in r.known_topic_ids},
            ),
        )

    def _stop_replica(self, effect: SendStopReplica) -> _Item:
        s = self._settings
        deleted = {p.tp for p in effect.partitions if p.delete}
        return _Item(
            _STOP_REPLICA,
            control.STOP_REPLICA_VERSION,
            lambda: messages.stop_replica(effect, s.broker_id, s.epoch),
            lambda r: StopReplicaAnswered(
                effect.broker_id,
                effect.broker_epoch,
                r.error_code,
                {tp: e for tp, e in _errors(r.partition_errors).items() if tp in deleted},
            ),
        )

    def _put(self, broker_id: BrokerId, item: _Item) -> None:
        channel = self._channels.get(broker_id)
        if channel is None:
            return
        if len(channel.queue) >= QUEUE_LIMIT:
            self.remove(broker_id)
            self._post(ChannelOverflowed(broker_id))
            return
        channel.queue.append(item)
        channel.wake.set()


def channel_endpoint(broker: BrokerInfo, settings: SenderSettings) -> Endpoint | None:
    """The address for requests to a broker: the control plane's, or the inter-broker one."""
    return broker.endpoint(settings.channel_listener) or broker.endpoint(
        settings.inter_broker_listener
    )


def _update_metadata(
    shared: messages.UpdateMetadataBody,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    gone: frozenset[str],
) -> _Item:
    return _Item(
        _UPDATE_METADATA,
        control.UPDATE_METADATA_VERSION,
        lambda: shared.for_broker(broker_epoch),
        lambda r: UpdateMetadataAnswered(broker_id, broker_epoch, r.error_code, gone),
    )


def _errors(partitions: Any) -> dict[TopicPartition, int]:
    return {TopicPartition(p.topic_name, p.partition_index): p.error_code for p in partitions}


class _Channel:
    def __init__(
        self,
        broker_id: BrokerId,
        endpoint: Endpoint,
        settings: SenderSettings,
        network: Network,
        post: Callable[[Event], None],
        permission: Callable[[], Awaitable[None]],
    ) -> None:
        self._permission = permission
        self.queue: deque[_Item] = deque()
        self.wake = trio.Event()
        self.scope = trio.CancelScope()
        self._broker_id = broker_id
        self._endpoint = endpoint
        self._timeout_s = settings.timeout_ms / 1000
        self._post = post
        self._connection = Reconnecting(
            network,
            str(settings.broker_id),
            lambda: (endpoint.host, endpoint.port),
            self._timeout_s,
        )
        self._silent = False

    async def run(self) -> None:
        with self.scope:
            try:
                while True:
                    while not self.queue:
                        self.wake = trio.Event()
                        await self.wake.wait()
                    await self._deliver(self.queue[0])
                    self.queue.popleft()
            finally:
                self._connection.close()

    async def _deliver(self, item: _Item) -> None:
        body = await in_steps(item.body())
        while True:
            try:
                connection = await self._connection.open()
                await self._permission()
                answer = await connection.call_raw(
                    item.api_key, item.version, [body], self._timeout_s
                )
                decoded = decode_response(item.api_key, item.version, answer)
            except (OSError, BadMessage) as e:
                self._failed(e)
                await trio.sleep(_BACKOFF_S)
            else:
                self._silent = False
                self._post(item.answered(decoded))
                return

    def _failed(self, error: Exception) -> None:
        self._connection.close()
        if not self._silent:
            self._silent = True
            log.warning(
                "broker %d at %s:%d does not take the controller's requests: %s",
                self._broker_id,
                self._endpoint.host,
                self._endpoint.port,
                error,
            )
