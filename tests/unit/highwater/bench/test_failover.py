"""The failover bench's pauses between acknowledgements, and the clients that the command starts."""

from __future__ import annotations

from pathlib import Path

from highwater.bench.failover import Writer
from highwater.bench.loads.writes import CLIENTS, command, settings_file

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


def test_each_client_has_a_command_and_settings(tmp_path: Path) -> None:
    for client in CLIENTS:
        path = settings_file(client, tmp_path, "127.0.0.1:1", "plaintext", 10)
        started = command(client, path, "t", Path("/kafka"))
        assert started[-2:] == [str(path), "t"]
        told = path.read_text()
        assert "127.0.0.1:1" in told
        assert "10" in told
        assert path.stat().st_mode & 0o77 == 0
    assert Path(command("java", path, "t", Path("/kafka"))[-3]).is_file()
