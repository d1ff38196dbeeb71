"""Leader epochs, with the answers that KIP-101 and KIP-279 define."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.broker.log.checkpoints import (
    MalformedFileError,
    decode_epochs,
    decode_offsets,
    encode_epochs,
)
from highwater.broker.log.epochs import Entry, EpochCache


def cache(*entries: Entry) -> tuple[EpochCache, list[list[Entry]]]:
    written: list[list[Entry]] = []
    return EpochCache(entries, written.append), written


def test_an_epoch_is_entered_once() -> None:
    epochs, written = cache()
    assert epochs.latest == -1
    epochs.assign(2, 10)
    epochs.assign(2, 15)
    assert epochs.entries == [(2, 10)]
    assert written == [[(2, 10)]]
    assert epochs.latest == 2


def test_a_leaders_epoch_is_written_with_its_first_batch() -> None:
    epochs, written = cache((1, 0))
    epochs.lead(2, 10)
    assert (epochs.entries, epochs.latest, epochs.dirty) == ([(1, 0), (2, 10)], 2, True)
    assert (epochs.unwritten, written) == (True, [])
    epochs.assign(2, 10)
    epochs.assign(2, 12)
    assert (epochs.unwritten, written) == (False, [[(1, 0), (2, 10)]])
    epochs.lead(2, 14)
    assert not epochs.unwritten


def test_an_epoch_without_a_batch_is_cut_off_in_the_file_too() -> None:
    epochs, written = cache((1, 0))
    epochs.lead(3, 14)
    epochs.lead(4, 14)
    epochs.truncate_from_end(5)
    assert (epochs.unwritten, written) == (False, [[(1, 0)]])


def test_entries_that_contradict_a_new_one_go() -> None:
    epochs, _ = cache((1, 0), (2, 10), (3, 20))
    epochs.assign(4, 20)
    assert epochs.entries == [(1, 0), (2, 10), (4, 20)]
    epochs.assign(5, 5)
    assert epochs.entries == [(1, 0), (5, 5)]
    epochs.assign(3, 30)
    assert epochs.entries == [(1, 0), (3, 30)]
    epochs.assign(3, 25)
    assert epochs.entries == [(1, 0), (3, 25)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),  # older than the log: begin where the log does
        (1, (1, 10)),
        (2, (1, 10)),  # never heard of: the one before it
        (3, (3, 20)),
        (4, (3, 20)),
        (5, (5, 33)),  # the latest goes on
        (6, (-1, -1)),  # from the future
    ],
)
def test_where_an_epoch_ends(asked: int, answer: Entry) -> None:
    epochs, _ = cache((1, 5), (3, 10), (5, 20))
    assert epochs.end_offset_for(asked, 33) == answer


def test_nothing_is_known_of_an_empty_log() -> None:
    epochs, _ = cache()
    assert epochs.end_offset_for(0, 0) == (-1, -1)
    assert epochs.epoch_for_offset(0) == -1


def test_truncation_from_the_end() -> None:
    epochs, written = cache((1, 0), (2, 10), (3, 20))
    epochs.truncate_from_end(21)
    assert written == []
    epochs.truncate_from_end(20)
    assert epochs.entries == [(1, 0), (2, 10)]
    epochs.truncate_from_end(0)
    assert (epochs.entries, epochs.latest) == ([], -1)


def test_truncation_from_the_start() -> None:
    epochs, written = cache((1, 0), (2, 10), (3, 20))
    epochs.truncate_from_start(0)
    assert written == []
    epochs.truncate_from_start(5)
    assert epochs.entries == [(1, 5), (2, 10), (3, 20)]
    epochs.truncate_from_start(10)
    assert epochs.entries == [(2, 10), (3, 20)]
    epochs.truncate_from_start(99)
    assert epochs.entries == [(3, 99)]


def test_the_epoch_of_an_offset() -> None:
    epochs, _ = cache((1, 5), (3, 10))
    assert [epochs.epoch_for_offset(o) for o in (0, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


def test_a_failed_write_changes_nothing() -> None:
    def fail(entries: list[Entry]) -> None:
        raise OSError("disk full")

    epochs = EpochCache([(1, 0)], fail)
    with pytest.raises(OSError):
        epochs.assign(2, 5)
    assert (epochs.entries, epochs.latest) == ([(1, 0)], 1)


_steps = st.lists(
    st.tuples(st.sampled_from(["assign", "end", "start"]), st.integers(0, 9), st.integers(0, 50))
)


@settings(deadline=None)
@given(_steps)
def test_entries_always_rise_in_both_numbers(steps: list[tuple[str, int, int]]) -> None:
    epochs, written = cache()
    for step, epoch, offset in steps:
        match step:
            case "assign":
                epochs.assign(epoch, offset)
            case "end":
                epochs.truncate_from_end(offset)
            case _:
                epochs.truncate_from_start(offset)
        entries = epochs.entries
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
        assert not written or written[-1] == entries
        assert decode_epochs(encode_epochs(entries)) == entries
        assert epochs.latest == (entries[-1][0] if entries else -1)


@pytest.mark.parametrize(
    "text",
    ["1\n0\n", "0\n2\n1 0\n", "0\n1\n1\n", "0\n1\na b\n", "0\n1\n-1 0\n", "0\nx\n", "0\n²\n"],
)
def test_malformed_files(text: str) -> None:
    with pytest.raises(MalformedFileError):
        decode_epochs(text.encode())


@pytest.mark.parametrize("line", ["t 0", "t 0 1 2", "t x 1", "t 0 x"])
def test_malformed_offsets(line: str) -> None:
    with pytest.raises(MalformedFileError, match=f"the line '{line}' is no offset"):
        decode_offsets(f"0\n1\n{line}\n".encode())


def test_an_empty_file_has_no_entries() -> None:
    assert decode_epochs(b"") == []
    assert decode_epochs(b"0\n0\n") == []
