"""The follower's side of an incremental fetch session (KIP-227).  Pure.

The first request names every partition.  The leader answers with a session id, and from then on
only changes are sent, in either direction.  After any error, or an id of 0, the session starts over
with all partitions.
"""

from __future__ import annotations

from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchAnswer, FetchPartition, FetchRequest

INITIAL_EPOCH = 0
MAX_EPOCH = 0x7FFFFFFF


class FollowerSession:
    def __init__(self) -> None:
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._known: dict[TopicPartition, FetchPartition] = {}

    def reset(self) -> None:
        self._id, self._epoch, self._known = 0, INITIAL_EPOCH, {}

    def request(
        self,
        wanted: dict[TopicPartition, FetchPartition],
        *,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
    ) -> FetchRequest:
        """The next request of the session, asking for exactly `wanted`."""
        if self._epoch == INITIAL_EPOCH:
            send, forgotten = list(wanted.values()), []
        else:
            known = self._known
            send = [p for tp, p in wanted.items() if (k := known.get(tp)) is not p and k != p]
            forgotten = [tp for tp in known if tp not in wanted]
        self._known = dict(wanted)
        return FetchRequest(
            replica_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            0,
            self._id,
            self._epoch,
            send,
            forgotten,
            "",
        )

    def answered(self, answer: FetchAnswer) -> None:
        if answer.error or answer.session_id == 0:
            self.reset()
            return
        self._id = answer.session_id
        self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
