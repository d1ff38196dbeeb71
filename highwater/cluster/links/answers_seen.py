"""The proxies' notes on members' answers to clients: errors, and the names of topics."""

from __future__ import annotations

from typing import Any

from highwater.cluster.links.link_rules import Links
from highwater.kafka.wire.codec import BadMessage, UnknownApi, decode_response
from highwater.kafka.wire.header import BadHeader, api_name, response_body_position

PRODUCE, FETCH, METADATA = 0, 1, 3
_WITH_TOPIC_IDS = 10
"""The first version of Metadata whose answers have topic ids."""


def take_note(links: Links, api_key: int, version: int, frame: memoryview) -> None:
    """Counts errors, which clients hide behind their retries, and learns the names of topic ids,
    because later requests name topics by id only.  `frame` is a whole answer, without its size."""
    if api_key not in (PRODUCE, FETCH) and not (api_key == METADATA and version >= _WITH_TOPIC_IDS):
        return
    try:
        position = response_body_position(api_key, version, frame)
        answer = decode_response(api_key, version, frame[position:])
    except (BadMessage, UnknownApi, BadHeader):
        return
    if api_key == METADATA:
        links.topic_ids.update({topic.topic_id: topic.name for topic in answer.topics})
    else:
        _count_errors(links, api_key, answer)


def _count_errors(links: Links, api_key: int, answer: Any) -> None:
    for topic in answer.responses:
        answers = topic.partition_responses if api_key == PRODUCE else topic.partitions
        for partition in answers:
            if partition.error_code:
                links.answers[api_name(api_key), str(partition.error_code)] += 1
