"""The fence for the controller's requests: LeaderAndIsr, StopReplica and UpdateMetadata."""

from __future__ import annotations

from dataclasses import dataclass

from highwater.kafka.errors import ApiError, ErrorCode
from highwater.kafka.types import BrokerEpoch, ControllerEpoch

UNKNOWN_BROKER_EPOCH = -1


class Overtaken(Exception):
    """The controller has given up the connection that brought this request: close it unanswered."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request, to which life of this broker, and on which connection."""

    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    connection: int
    """The connection's number, greater than that of any connection accepted before."""


class ControllerFence:
    """The newest controller that this broker has heard of, and its newest connection.

    Only this object changes the two.  A request is checked when it arrives, and again after each
    wait before it changes anything.
    """

    def __init__(self) -> None:
        self.controller_epoch = ControllerEpoch(0)
        """The highest epoch of the requests admitted so far; it never falls."""
        self._connection = -1
        """The newest connection of the controller of that epoch; it rises within the epoch."""

    def admit(self, sender: Sender, broker_epoch: BrokerEpoch) -> None:
        """Admits a request, or raises.  `broker_epoch` is this broker's own.

        Raises ApiError: STALE_BROKER_EPOCH for a request to an earlier life of this broker
        (KIP-380), STALE_CONTROLLER_EPOCH for a request of an earlier controller.  A request with a
        later broker epoch than this broker's is admitted: the answer to this broker's registration
        may still be on its way.  Controllers that know no broker epochs send -1.

        Raises Overtaken if the same controller has sent something over a newer connection.  It has
        given this connection up, and requests left in it are older than those that came since.  If
        they were taken now, the metadata would name an earlier leader until the next change (Kafka
        does that), and a new topic of the same name would be deleted.  A controller that still uses
        the connection (connections may be accepted in another order than they were opened) sends
        the request again over a new one.
        """
        if sender.broker_epoch != UNKNOWN_BROKER_EPOCH and sender.broker_epoch < broker_epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
        if sender.controller_epoch < self.controller_epoch:
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if sender.controller_epoch > self.controller_epoch:
            self.controller_epoch, self._connection = sender.controller_epoch, -1
        if sender.connection < self._connection:
            raise Overtaken
        self._connection = sender.connection
