"""The failover bench's pauses between acknowledgements, and the clients that the command starts."""

from __future__ import annotations

from pathlib import Path

from highwater.bench.failover import Writer
from highwater.bench.loads.writes import CLIENTS, command

MS = 1_000_000


def writer(*acks_ms: int) -> Writer:
    made = Writer("java", "t")
    for ms in acks_ms:
        made._heard(f"ack {ms * MS}")
    return made


def test_the_pause_ends_where_the_longest_gap_does() -> None:
    """An acknowledgement that was on its way when the leader died does not end it."""
    assert writer(90, 95, 101, 350, 355, 360).pause_ms(100 * MS) == 250
    assert writer(90, 95, 350, 355, 500, 505).pause_ms(100 * MS) == 250
    assert writer(90, 95, 105, 110, 400).pause_ms(100 * MS) == 300


def test_the_gap_of_a_swap_is_between_two_acknowledgements() -> None:
    assert writer(10, 110, 115, 140, 141).gap_ms(105 * MS) == 25


def test_errors_are_kept() -> None:
    made = writer(1)
    made._heard("error no leader")
    made._heard("Picked up JAVA_TOOL_OPTIONS")
    assert made.errors == ["no leader"]
    assert len(made.acks_ns) == 1


def test_each_client_has_a_command() -> None:
    for client in CLIENTS:
        started = command(client, "127.0.0.1:1", "t", Path("/kafka"))
        assert started[-2:] == ["127.0.0.1:1", "t"]
    assert Path(command("java", "b", "t", Path("/kafka"))[-3]).is_file()
