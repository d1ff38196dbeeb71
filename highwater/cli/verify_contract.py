"""`highwater verify --contract FILE`: whether a user's own topics keep what the file demands."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from highwater.base.wall_clock import wall_ms
from highwater.cli.error_lines import complain
from highwater.doctor.reach import addresses, reach
from highwater.doctor.talk import Login
from highwater.kafka.config.checks import ConfigError
from highwater.kafka.config.sources import parse_properties
from highwater.verdict.contracts import duck_engine
from highwater.verdict.contracts.contract_model import ContractError, load
from highwater.verdict.contracts.duck_engine import RecordsUnreadable
from highwater.verdict.contracts.fields import Record
from highwater.verdict.contracts.judge import judge
from highwater.verdict.contracts.reader import Reader, librdkafka_settings
from highwater.verdict.plain_table import example_lines
from highwater.verdict.report.colour_table import verdict_table


def verify_contract(
    file: Path,
    run: Path | None,
    bootstrap: str | None,
    command_config: Path | None,
    examples: int,
    json_file: Path | None,
) -> int:
    """Prints the table; the exit code.  Records come from `bootstrap`, or from `run`/consumed."""
    try:
        contract = load(str(file), _text)
        properties = _properties(command_config)
        settings = librdkafka_settings(properties)
        read_ms = wall_ms()
        notes: list[str] = []
        records: Iterable[Record]
        if bootstrap is not None:
            reader = Reader(
                contract, bootstrap, settings, lambda line: click.echo(line, err=True),
                partial(_unreachable, bootstrap, properties),
            )  # fmt: skip
            records, notes = reader.records(), reader.notes
        else:
            assert run is not None
            records = duck_engine.consumed(run / "consumed", contract.topics)
        found = duck_engine.check(contract, records, read_ms, examples)
    except (ContractError, RecordsUnreadable, ConfigError) as error:
        complain(str(error))
        return 3
    judgement = judge(contract, found, notes)
    if json_file is not None:
        json_file.write_text(judgement.as_json(), encoding="utf-8")
    console = Console()
    console.print(f"{judgement.headline}\n", markup=False, highlight=False, soft_wrap=True)
    console.print(verdict_table(judgement))
    for line in [*example_lines(judgement, examples), *judgement.notes]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return judgement.exit_code


def _unreachable(bootstrap: str, properties: dict[str, str]) -> str | None:
    """Why no broker is reached, in the doctor's words; None where one is, or where the doctor
    cannot log in by this mechanism.
    """
    login = Login.of(properties)
    if login.sasl and not login.mechanism.startswith(("PLAIN", "SCRAM")):
        return None
    try:
        reached = reach(addresses(bootstrap), login, lambda line: None)
    except ValueError as error:
        return f"--bootstrap: {error}"
    if reached.talk is not None:
        reached.talk.close()
        return None
    found = reached.findings[0]
    why = found.why.removesuffix(".")
    return f"{found.what}: {why}: {found.remedy}" if found.remedy else f"{found.what}: {why}"


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError(f"{path} cannot be read: {error}") from None


def _properties(path: Path | None) -> dict[str, str]:
    return {} if path is None else parse_properties(path.read_text(encoding="utf-8"), str(path))
