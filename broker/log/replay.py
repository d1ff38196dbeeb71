"""Rebuilds producer state from the log: the headers of the batches after a snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from highwater.broker.log.producers import ProducerStates
from highwater.broker.log.segment import CorruptSegmentError, Segment
from highwater.kafka.errors import ApiError
from highwater.kafka.wire.records import BatchHeader, Marker, marker_of


def marker_in(segment: Segment, header: BatchHeader) -> Marker | None:
    """The marker in a control batch of a segment; raises CorruptSegmentError."""
    data = segment.file.read(header.position, header.size)
    try:
        return marker_of(data, header, header.position)
    except ApiError as error:
        raise CorruptSegmentError(
            f"{segment.file.path}: no marker is in the batch at byte {header.position}"
        ) from error


def replay(producers: ProducerStates, segments: Sequence[Segment], end: int) -> None:
    """Brings the producers from their `end_offset` to `end`, the end of the segments."""
    start = producers.end_offset
    for n, segment in enumerate(segments):
        if n + 1 < len(segments) and segments[n + 1].base_offset <= start:
            continue
        for header in segment.walk(segment.locate(start)):
            if header.last_offset >= start:
                producers.replay(header, lambda h, s=segment: marker_in(s, h))  # type: ignore[misc]
    producers.end_offset = end
