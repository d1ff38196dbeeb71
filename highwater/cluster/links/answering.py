"""The rules with `Action.ANSWER` at one message: which of them takes it, and what is sent instead.

A rule counts a message once an answer with its error was made.  A message that it cannot read goes
on unchanged, and is counted apart.  Of several rules the first one that can answer does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from highwater.cluster.links.error_answers import Chosen, error_answer, with_error
from highwater.cluster.links.frames import Ended, Frames
from highwater.cluster.links.link_rules import Links, Message, Rule
from highwater.cluster.links.rewriting import Replace, must_be_read, rewritten
from highwater.cluster.links.session import Asked
from highwater.kafka.wire.codec import BadMessage, UnknownApi
from highwater.kafka.wire.header import BadHeader, parse_request_header

READABLE = 16 << 20
"""The largest frame that is read as a whole."""

_SIZE = struct.Struct(">i")

Made = Callable[[Rule, Chosen], bytes | None]


async def read_whole(
    rules: Sequence[Rule], frames: Frames, head: bytes, size: int
) -> tuple[bytes, bool]:
    """The frame that these rules want to answer, and whether it is whole."""
    if size <= READABLE:
        return head + await frames.rest_of_frame(), True
    for rule in rules:
        rule.unread += 1
    return head, False


async def rewritten_frame(
    asked: tuple[int, int], head: bytes, frames: Frames, replace: Replace
) -> bytes:
    """The whole answer with its addresses replaced, if this API's answers have addresses; else the
    answer's first bytes as they are."""
    if not must_be_read(*asked):
        return head
    frame = (head + await frames.rest_of_frame())[4:]
    try:
        frame = rewritten(*asked, frame, replace)
    except (BadMessage, UnknownApi, BadHeader) as error:
        raise Ended(f"an answer that cannot be read may lead past the proxy: {error}") from None
    return _SIZE.pack(len(frame)) + frame


def answer_instead(links: Links, message: Message, asked: Asked, frame: bytes) -> bytes | None:
    """A rule's answer (without its size) to this request; None if the member shall answer."""
    header = parse_request_header(frame)
    body = memoryview(frame)[header.body_position :]

    def made(rule: Rule, chosen: Chosen) -> bytes | None:
        return error_answer(header, body, rule.error, chosen, rule.throttle_ms)

    return _by_rule(links, message, asked, made)


def answer_with_error(links: Links, message: Message, asked: Asked, frame: bytes) -> bytes:
    """The member's answer (without its size), with an error if a rule puts one into it."""
    key, version = asked.api_key, asked.version

    def made(rule: Rule, chosen: Chosen) -> bytes | None:
        return with_error(key, version, frame, rule.error, chosen, rule.throttle_ms)

    return _by_rule(links, message, asked, made) or frame


def _by_rule(links: Links, message: Message, asked: Asked, made: Made) -> bytes | None:
    for rule in links.answering(message):  # looked up again: some may be used up by now
        try:
            answer = made(rule, Chosen(rule.topic, rule.partition, links.topic_ids))
        except (BadMessage, UnknownApi, BadHeader):
            rule.unread += 1
            continue
        if answer is not None and rule.is_due():
            rule.answered[asked.client_id or ""] += 1
            rule.closed += asked.silent
            return answer
    return None
