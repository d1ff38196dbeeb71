"""Records which broker epochs a controller has dealt with, for the controllers after it.

A broker that comes back after a crash may have lost the end of its log: acknowledged records need
not be on a disk, only in the memory of every member of the ISR.  So the broker must leave the ISRs
before it can lead, and rejoins them when it has caught up.  A controller sees that a broker came
back because its broker epoch, the czxid of its registration, differs from the known one (KIP-380).
But a *new* controller knows no epochs, and a broker may restart fast enough to take over its own
stale registration while the controller moves (most of all to that very broker).  No controller
would notice: the broker would go on leading, in the same leader epoch, with a log that has lost its
end.

So the epochs that were dealt with are kept in ZooKeeper, in a znode that Kafka does not have.  It
is written after the ISRs, by the same guarded writes, so that it never claims too much.  The next
controller treats a broker whose registration is not in it as bounced.  If another program was the
controller meanwhile, the record is behind, which costs one shrink and expand of some ISRs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from highwater.controller.rules.effects import Get, Procedure, read, write
from highwater.controller.rules.state import State
from highwater.kafka import znodes
from highwater.kafka.types import BrokerId, BrokerInfo
from highwater.world.api import SetData, ZkError

log = logging.getLogger("controller")


def unhandled(registered: Mapping[BrokerId, BrokerInfo]) -> Procedure[list[BrokerId]]:
    """The registered brokers that no earlier controller has dealt with.

    There are none without a record, as for the first controller of a cluster.
    """
    (answer,) = yield from read([Get(znodes.HANDLED_BROKER_EPOCHS)])
    if answer is None:
        return []
    try:
        handled = znodes.decode_handled_epochs(answer[0])
    except znodes.BadZnode as e:
        log.error("%s: every broker is taken as restarted", e)
        handled = {}
    if handled is None:
        return []
    return [b for b in sorted(registered) if handled.get(b) != registered[b].epoch]


def handled(state: State) -> Procedure[None]:
    """Records that all brokers known now have been dealt with."""
    known = {**state.brokers, **state.suspected}
    data = znodes.encode_handled_epochs({b: info.epoch for b, info in known.items()})
    (result,) = yield from write([(SetData(znodes.HANDLED_BROKER_EPOCHS, data),)])
    if isinstance(result, ZkError):
        log.error("the handled broker epochs cannot be noted: %s", result)
