"""Share sessions: which partitions a member fetches from this broker (KIP-932).  Pure.

A session belongs to a member and to the connection that opened it.  Epoch 0 opens it, in place of
an earlier one; each later request has the next epoch, so that none is lost or comes twice; -1
closes it.  It also ends with its connection, and then what the member had acquired is released.

The number of sessions is limited (group.share.max.share.sessions), and a session does not go for
want of use: a member that is alive fetches, and one that is not loses its connection.

Source: org.apache.kafka.server.share.session, SharePartitionManager.newContext.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from highwater.kafka.errors import ApiError, ErrorCode

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    partition: int


class ShareSession:
    """One member's session."""

    def __init__(
        self, group: str, member: str, connection: int, partitions: Iterable[TopicIdPartition]
    ) -> None:
        self.group = group
        self.member = member
        self.connection = connection
        self.epoch = 1
        """The epoch of its next request."""
        self.closed = False
        self.partitions = dict.fromkeys(partitions, False)
        """Whether the next answer names a partition even if nothing is acquired there: it was
        added, or had an error in the last answer."""

    def change(
        self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        for partition in added:
            self.partitions.setdefault(partition, True)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def in_turn(self) -> list[TopicIdPartition]:
        """The partitions, another one first each time, so that none starves the others."""
        found = list(self.partitions)
        shift = (self.epoch - 1) % len(found) if found else 0
        return found[shift:] + found[:shift]

    def is_news(self, partition: TopicIdPartition, size: int, error: int) -> bool:
        """Whether an answer to a later request names the partition; notes that it did."""
        if partition not in self.partitions:
            return bool(size or error)
        news = bool(size or error or self.partitions[partition])
        self.partitions[partition] = bool(error)
        return news


class ShareSessions:
    """All sessions of one broker."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_connection: dict[int, dict[ShareSession, None]] = {}
        self._of_group: dict[str, int] = {}
        self.evictions = 0
        """Sessions that ended with their connections."""

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions(self) -> int:
        """The number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def has_group(self, group: str) -> bool:
        """Whether a member of the group has a session."""
        return group in self._of_group

    def open(
        self, group: str, member: str, connection: int, partitions: Sequence[TopicIdPartition]
    ) -> ShareSession:
        """Raises ApiError(SHARE_SESSION_LIMIT_REACHED).

        An earlier session of the member goes, but not what was acquired in it.
        """
        earlier = self._sessions.get((group, member))
        if earlier is not None:
            self.close(earlier)
        if len(self._sessions) >= self._limit:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group, member, connection, partitions)
        self._sessions[group, member] = session
        self._of_connection.setdefault(connection, {})[session] = None
        self._of_group[group] = self._of_group.get(group, 0) + 1
        return session

    def use(self, group: str, member: str, epoch: int) -> ShareSession:
        """The session that a request names, which now waits for the next epoch; raises ApiError:
        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self._sessions.get((group, member))
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def close(self, session: ShareSession) -> None:
        if session.closed:
            return
        session.closed = True
        del self._sessions[session.group, session.member]
        of_connection = self._of_connection[session.connection]
        del of_connection[session]
        if not of_connection:
            del self._of_connection[session.connection]
        self._of_group[session.group] -= 1
        if not self._of_group[session.group]:
            del self._of_group[session.group]

    def disconnected(self, connection: int) -> list[ShareSession]:
        """Closes the sessions of a connection that has ended, and returns them."""
        ended = list(self._of_connection.get(connection, ()))
        for session in ended:
            self.close(session)
            self.evictions += 1
        return ended
