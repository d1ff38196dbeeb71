"""The coordinator's answers to aiokafka about committed offsets, from aiokafka's own log.

aiokafka does not show its application the answer to OffsetFetch, and from version 2 of that API on
does not read an error that stands for the whole answer (docs/client-problems.md).  But its
connections log each request and answer, as objects.  They are taken from there for G2, which must
know whether a member that began again got an error or a wrong offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from highwater.kafka.errors import ErrorCode

LOGGER: Final = "aiokafka.conn"
OFFSET_FETCH: Final = 9
Write = Callable[..., None]
"""`MemberHistory.write`."""


class OffsetFetchAnswers(logging.Handler):
    """Writes one `offset_fetch` line for each partition: ok with the offset (-1: none), or fail.

    A log in another form than aiokafka 0.14's yields no lines, hence no evidence.
    """

    def __init__(self, write: Write) -> None:
        super().__init__(logging.DEBUG)
        self._write = write
        self._asked: dict[tuple[Any, ...], Any] = {}
        self.refused = 0
        """How many answers so far were an error as a whole."""

    @classmethod
    def follow(cls, write: Write) -> OffsetFetchAnswers:
        """Follows aiokafka's log in this process, from now on."""
        made = cls(write)
        logger = logging.getLogger(LOGGER)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(made)
        return made

    def emit(self, record: logging.LogRecord) -> None:
        if not isinstance(record.args, tuple) or len(record.args) != 4:
            return
        message: Any
        *request_id, message = record.args
        if getattr(message, "API_KEY", None) != OFFSET_FETCH:
            return
        if record.msg.startswith("Request to "):
            self._asked[tuple(request_id)] = message.topics
        elif record.msg.startswith("Response from "):
            asked = self._asked.pop(tuple(request_id), [])
            if code := getattr(message, "error_code", 0):
                self.refused += 1
                self._each(asked, ErrorCode(code).name)
            else:
                self._each_answered(message.topics)

    def _each(self, topics: Any, error: str) -> None:
        for topic, partitions in topics:
            for partition in partitions:
                self._write("offset_fetch", "fail", topic=topic, partition=partition, error=error)

    def _each_answered(self, topics: Any) -> None:
        for topic, partitions in topics:
            for partition, offset, _, code in partitions:
                common = {"topic": topic, "partition": partition}
                if code:
                    error = ErrorCode(code).name
                    self._write("offset_fetch", "fail", error=error, **common)
                else:
                    self._write("offset_fetch", "ok", offset=offset, **common)
