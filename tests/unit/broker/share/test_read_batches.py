"""What a share fetch learns from the headers of batches."""

from __future__ import annotations

from highwater.broker.share.acquisition import LogBatch
from highwater.broker.share.read_batches import log_batches, spanned
from highwater.kafka.wire.records import CONTROL, TRANSACTIONAL, BatchHeader


def header(first: int, last: int, producer: int = -1, attributes: int = 0) -> BatchHeader:
    return BatchHeader(
        first * 100, (last - first + 1) * 100, first, 0, 2, 0, attributes, last - first,
        0, 0, producer, 0, 0, 1,
    )  # fmt: skip


def test_an_aborted_transaction_ends_with_its_marker() -> None:
    marker = CONTROL | TRANSACTIONAL
    headers = [
        header(0, 1, 7, TRANSACTIONAL),
        header(2, 2, 8, TRANSACTIONAL),
        header(3, 3, 7),
        header(4, 4, 7, marker),
        header(5, 5, 7, TRANSACTIONAL),
        header(6, 6, 7, marker),
        header(7, 8, 7, TRANSACTIONAL),
    ]
    found = log_batches(headers, [(7, 7), (7, 0)])
    assert found == [
        LogBatch(h.base_offset, h.last_offset, h.base_offset in (0, 7)) for h in headers
    ]
    assert not any(b.aborted for b in log_batches(headers))


def test_the_batches_of_what_was_acquired() -> None:
    headers = [header(0, 1), header(2, 4), header(8, 9)]
    assert spanned(headers, 3, 3) == (200, 300)
    assert spanned(headers, 1, 7) == (0, 500)
    assert spanned(headers, 2, 20) == (200, 800)
