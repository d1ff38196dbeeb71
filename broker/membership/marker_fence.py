"""Refuses transaction markers that come over another than a coordinator's newest connection.

A coordinator that waits in vain for an answer closes the connection, and sends the markers again
over a new one; the producer's next transaction may begin as soon as those are written.  Markers
left in the old connection can still arrive, after a cut network for instance, with the same
producer epoch and coordinator epoch.  If they were taken then, they would end the next transaction
with the decision of the one before (Kafka takes them, up to the epochs of KIP-890).  So requests
of a connection older than the newest one are not taken.

Other senders, such as administrators who abort a hanging transaction (KIP-664), are not compared.
"""

from __future__ import annotations

import re

PURPOSE = "txn-markers"
"""The end of the client id of a coordinator's link."""
_COORDINATOR = re.compile(rf"broker-\d{{1,10}}-{PURPOSE}")
_MOST = 10_000
"""The most coordinators to remember, in case somebody invents some."""


class MarkerFence:
    """The fence of one broker."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def admit(self, client_id: str | None, connection: int) -> bool:
        """Whether a request of this client may be taken.  `connection` is greater than the number
        of any connection accepted before."""
        if client_id is None or _COORDINATOR.fullmatch(client_id) is None:
            return True
        if connection < self._newest.get(client_id, -1):
            return False
        if len(self._newest) >= _MOST and client_id not in self._newest:
            del self._newest[next(iter(self._newest))]
        self._newest[client_id] = connection
        return True
