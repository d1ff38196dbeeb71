"""The asking side of an incremental fetch session, a follower's or a consumer's (KIP-227).  Pure.

The first request names every partition.  The leader answers with a session id, and from then on
only changes are sent, in either direction.  After any error, or an id of 0, the session starts over
with all partitions.

Source: org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from highwater.kafka.errors import ErrorCode
from highwater.kafka.types import TopicPartition
from highwater.kafka.wire.fetch import FetchAnswer, FetchPartition, FetchRequest

INITIAL_EPOCH = 0
MAX_EPOCH = 0x7FFFFFFF
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
)
"""The broker has dropped the session, or has seen another request of it: the next one names every
partition."""


class FetchSessionHandler:
    def __init__(self) -> None:
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._asked: dict[TopicPartition, FetchPartition] = {}

    def reset(self) -> None:
        self._id, self._epoch = 0, INITIAL_EPOCH

    @property
    def is_new(self) -> bool:
        """Whether the next request must name every partition."""
        return self._epoch == INITIAL_EPOCH

    def asked(self, tp: TopicPartition) -> FetchPartition | None:
        """As the latest request asked for it, by name or as before; None if it did not."""
        return self._asked.get(tp)

    def others(self, tps: Iterable[TopicPartition]) -> int:
        """The number of partitions of the session besides these."""
        return 0 if self.is_new else len(self._asked) - sum(tp in self._asked for tp in tps)

    def request(
        self,
        wanted: Mapping[TopicPartition, FetchPartition],
        *,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int = 0,
    ) -> FetchRequest:
        """The next request of the session, asking for exactly `wanted`."""
        changes: dict[TopicPartition, FetchPartition | None] = dict(wanted)
        changes.update({tp: None for tp in self._asked if tp not in wanted})
        return self.change(
            changes,
            replica_id=replica_id,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
        )

    def change(
        self,
        changes: Mapping[TopicPartition, FetchPartition | None],
        *,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int = 0,
    ) -> FetchRequest:
        """The next request of the session: for these again, without those that are None, and for
        all others as before.
        """
        if self.is_new:
            self._asked = {}
        asked, send, forgotten = self._asked, [], []
        for tp, wanted in changes.items():
            before = asked.get(tp)
            if wanted is not None:
                asked[tp] = wanted
                if before is not wanted and before != wanted:
                    send.append(wanted)
            elif before is not None:
                del asked[tp]
                forgotten.append(tp)
        return FetchRequest(
            replica_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            self._id,
            self._epoch,
            send,
            forgotten,
            "",
        )

    def answered(self, answer: FetchAnswer) -> None:
        self.told(answer.error, answer.session_id)

    def told(self, error: int, session_id: int) -> None:
        """Takes the error and the session id of an answer."""
        if error or session_id == 0:
            self.reset()
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
