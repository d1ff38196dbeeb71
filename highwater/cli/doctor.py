"""`highwater doctor`: what a client's settings would do to its data, and why it cannot connect."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from highwater.cli.error_lines import complain

if TYPE_CHECKING:
    from highwater.doctor.client_findings import Finding
    from highwater.doctor.dialects import Dialect
    from highwater.doctor.examination import Examination

WIDTH = 96


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--set", "extra", multiple=True, metavar="NAME=VALUE", help="One more setting.")
@click.option(
    "--client",
    type=click.Choice(["java", "librdkafka", "kafka-python", "aiokafka"]),
    help="Whose names and defaults hold.  [default: as the names tell]",
)
@click.option("--role", type=click.Choice(["producer", "consumer"]), help="Look at this one only.")
@click.option(
    "--bootstrap", metavar="HOST:PORT,…", help="Connect there, with the settings' security."
)
@click.option(
    "--connect", is_flag=True, help="Connect to the bootstrap.servers that the settings name."
)
@click.option("--topic", "topics", multiple=True, help="Look at this topic; needs a connection.")
@click.option(
    "--watch",
    "watched",
    is_flag=True,
    help="Stand before the brokers, and tell what the clients that connect there do.",
)
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(1, 86400),
    help="Watch so many seconds.  [default: until Ctrl-C]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(
    file: Path | None,
    extra: tuple[str, ...],
    client: str | None,
    role: str | None,
    bootstrap: str | None,
    connect: bool,
    topics: tuple[str, ...],
    watched: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Tell which of a client's settings lose, repeat or reorder records, and why it cannot connect.

    FILE holds the client's settings: .properties (Spring Boot's, too), .yaml, .json or .toml.

    Exit code: 0 nothing was found, 1 something was, 2 where no setting was recognised, 3 where the
    settings cannot be read.

    \b
    Examples:
      highwater doctor producer.properties
      highwater doctor --set acks=1 --role producer --client librdkafka
      highwater doctor client.properties --bootstrap 127.0.0.1:9092 --topic orders
      highwater doctor --watch --bootstrap 127.0.0.1:9092
    """
    from highwater.doctor.dialects import recognised
    from highwater.doctor.examination import examine_connection, examine_settings
    from highwater.doctor.settings_file import UnreadableSettings, read_settings

    if topics and not (bootstrap or connect):
        raise click.UsageError("--topic needs --bootstrap HOST:PORT, or --connect")
    if seconds is not None and not watched:
        raise click.UsageError("--for is how long to --watch")
    given = _given(extra)
    try:
        read = read_settings(file) if file is not None else {"": {}}
    except UnreadableSettings as error:
        complain(str(error))
        raise SystemExit(3) from None
    by_role = {of: {**settings, **given} for of, settings in read.items()}
    every = {name: value for settings in by_role.values() for name, value in settings.items()}
    if not every and bootstrap is None and file is not None:
        complain(f"{file} holds no setting: write some, as acks=all")
        raise SystemExit(3)
    if not every and bootstrap is None:
        raise click.UsageError("name a file with the client's settings, or --set, or --bootstrap")
    if every and not any(recognised(name) for name in every):
        complain(
            f"{file or '--set'}: no setting of a Kafka client was recognised, so nothing was"
            " examined: they are acks, enable.idempotence, group.id, enable.auto.commit and so on,"
            " in a .properties, .yaml, .json or .toml file"
        )
        raise SystemExit(2)
    dialect = _dialect(every, client)
    examined = examine_settings(by_role, dialect, role)
    where = bootstrap or (_bootstrap_of(every, dialect) if connect or watched else None)
    if watched and where is not None:
        _watch(where, {dialect.java_name(n): v for n, v in every.items()}, seconds, as_json)
    if where is not None:
        try:
            examine_connection(examined, where, topics, lambda line: click.echo(line, err=True))
        except ValueError as error:
            raise click.UsageError(f"--bootstrap: {error}") from None
    if as_json:
        click.echo(json.dumps(examined.as_json(), indent=1))
    else:
        _show(examined)
    raise SystemExit(examined.exit_code)


def _watch(
    bootstrap: str, given: Mapping[str, str], seconds: float | None, as_json: bool
) -> NoReturn:
    from highwater.doctor.client_watch import watch
    from highwater.doctor.reach import addresses
    from highwater.doctor.rules import IN_FLIGHT
    from highwater.doctor.talk import Login

    try:
        places = addresses(bootstrap)
    except ValueError as error:
        raise click.UsageError(f"--bootstrap: {error}") from None
    watched = watch(places, Login.of(given), seconds, lambda line: click.echo(line, err=True))
    if as_json:
        click.echo(json.dumps(watched.as_json(), indent=1))
        raise SystemExit(watched.exit_code)
    click.echo(watched.headline)
    if watched.connection:
        click.echo("\nconnection")
        _list(watched.connection)
    for client, findings in watched.clients:
        click.echo(f"\n{client}: {' and '.join(sorted(client.roles)) or 'it only looks around'}")
        seen = [f"{n}={' and '.join(v)}" for n, v in client.settings.items() if n != IN_FLIGHT]
        seen += [f"at most {n} in flight" for n in client.settings.get(IN_FLIGHT, ())]
        for line in textwrap.wrap("  ".join(seen), WIDTH - 2):
            click.echo(f"  {line}")
        _list(findings)
    raise SystemExit(watched.exit_code)


def _given(extra: tuple[str, ...]) -> dict[str, str]:
    for setting in extra:
        if "=" not in setting:
            raise click.UsageError(f"--set {setting!r}: write NAME=VALUE")
    return {name.strip(): value for name, _, value in (setting.partition("=") for setting in extra)}


def _dialect(settings: Mapping[str, str], client: str | None) -> Dialect:
    from highwater.doctor.dialects import DIALECTS, guess

    if client is not None:
        return DIALECTS[client]
    dialect, sure = guess(settings)
    if settings and not sure:
        click.echo(f"taken for the settings of {dialect.name} (--client says otherwise)", err=True)
    return dialect


def _bootstrap_of(settings: Mapping[str, str], dialect: Dialect) -> str:
    named = {dialect.java_name(name): value for name, value in settings.items()}
    if not (found := named.get("bootstrap.servers")):
        raise click.UsageError("the settings name no bootstrap.servers: --bootstrap HOST:PORT")
    return found


def _show(examined: Examination) -> None:
    """The headline, then each finding: what, why, and the remedy."""
    click.echo(examined.headline)
    for where, some in examined.found.items():
        if not some:
            continue
        click.echo(f"\n{where}" + (f" ({examined.dialect.versions})" if where in ROLES else ""))
        _list(some)


def _list(findings: Sequence[Finding]) -> None:
    from highwater.doctor.client_findings import in_order

    for finding in in_order(findings):
        click.echo(f"  {finding.effect.upper():<14}  {finding.what}")
        for line in textwrap.wrap(finding.why, WIDTH - 18):
            click.echo(f"{'':18}{line}")
        if finding.remedy:
            for line in textwrap.wrap(f"-> {finding.remedy}", WIDTH - 18):
                click.echo(f"{'':18}{line}")


ROLES = ("producer", "consumer")
