"""`highwater fault`: break and mend the running cluster, and wait for what that does to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from highwater.cli.cluster_folder import control_url, default_folder, dir_option
from highwater.cli.error_lines import complain
from highwater.cluster.faults.verb_row import Verb
from highwater.cluster.faults.verb_table import FAULTS, fields_of

WAIT_S = 10.0
LOOK_S = 2.0
"""How long a fault of a link is looked at before it is told that no traffic has met it."""
_HELP = """Break the running cluster: {verbs} (docs/faults.md).

Targets are members or roles: broker-2, zookeeper, controller, leader of orders-0, follower of
orders-0.  It says the effect that was seen; where none was, the exit code is 1.  A fault of a
link on which nothing goes is on all the same, and said to be.  Beside the verbs: `list` shows
the faults that are on, `end ID` ends one, `mend` ends all and starts what is down, `wait` waits
for what docs/control.md lists.

\b
Examples:
  highwater fault kill leader of orders-0
  highwater fault start broker-2
  highwater fault cut --from broker-1 --to zookeeper --for 5
  highwater fault latency --from clients --to controller --latency 200 --for 10
  highwater fault slow_disk broker-2 --latency 200 --for 10
  highwater fault hold --api Fetch --side response --from "leader of orders-0"
  highwater fault swap_leader orders-0
  highwater fault wait leader of orders-0 is not broker-2 --within 20
  highwater fault mend
"""


def _options(verbs: Mapping[str, Verb]) -> Iterator[click.Option]:
    """One for each name of a field; its values are named where all of its verbs take the same."""
    for name, fields in fields_of(verbs).items():
        first = next(iter(fields))
        kind: dict[str, Any] = {"type": first.type}
        if first.type is bool:
            kind = {"is_flag": True, "default": None}
        elif first.choices and all(field.choices == first.choices for field in fields):
            kind = {"type": click.Choice(first.choices)}
        text = "; ".join(f"{', '.join(of)}: {field.text}" for field, of in fields.items())
        yield _option(name, f"{text}.", **kind)
    yield _option("as", "A name for the target, for later: $NAME.")
    yield _option("for", "Seconds after which the fault is ended.", type=float)


def _option(name: str, text: str, **kind: Any) -> click.Option:
    return click.Option([f"--{name.replace('_', '-')}", f"field_{name}"], help=text, **kind)


def command(verbs: Mapping[str, Verb]) -> click.Command:
    """`highwater fault` with these verbs."""
    own, text = _fault.params, _HELP.format(verbs=", ".join(verbs))
    params = [*own[:2], *_options(verbs), *own[2:]]
    return click.Command("fault", callback=_fault.callback, params=params, help=text)


@click.command()
@click.argument("verb")
@click.argument("target", nargs=-1)
@click.option(
    "--within",
    type=click.FloatRange(0),
    help="A cut, hold, latency, ... must meet traffic within so many seconds, else the exit code is"
    " 1.  For `wait`: its seconds.  [default for `wait`: 10]",
)
@dir_option
def _fault(
    verb: str, target: tuple[str, ...], within: float | None, folder: Path | None, **fields: Any
) -> None:
    from highwater.agent.client import Control, ControlError
    from highwater.agent.control_token import token_of

    entry = {k.removeprefix("field_"): v for k, v in fields.items() if v is not None}
    _refuse_surplus(verb, " ".join(target), entry)
    folder = (folder or default_folder()).absolute()
    url = control_url(folder)
    if url is None:
        raise click.ClickException(
            f"no cluster runs in {folder}: `highwater up --detach` starts one"
        )
    try:
        _carry_out(Control(url, token_of(folder)), verb, " ".join(target), entry, within)
    except ControlError as error:
        complain(error.message)
        raise SystemExit(1) from None


fault = command(FAULTS)


def _refuse_surplus(verb: str, target: str, entry: dict[str, Any]) -> None:
    if verb in ("list", "mend") and (target or entry):
        raise click.UsageError(f"{verb} is of the whole cluster: leave out what follows it")
    if verb in ("wait", "end") and entry:
        raise click.UsageError(f"{verb} takes no --{next(iter(entry)).replace('_', '-')}")


def _carry_out(
    control: Any, verb: str, target: str, entry: dict[str, Any], within: float | None
) -> None:
    if verb == "list":
        for fired in control.status()["faults"]:
            click.echo(f"{fired['id']:>4}  {fault_line(fired)}")
    elif verb == "mend":
        control.mend()
        click.echo("mended")
    elif verb == "wait":
        click.echo(
            f"{target}: after {control.wait(target, WAIT_S if within is None else within):.1f} s"
        )
    elif verb == "end":
        if not target.isdecimal():
            raise click.UsageError("end needs the number of a fault: `highwater fault list`")
        click.echo(fault_line(control.end_fault(int(target))))
    else:
        _fire(control, verb, target, entry, within)


def _fire(
    control: Any, verb: str, target: str, entry: dict[str, Any], within: float | None
) -> None:
    fired = control.fault(verb, target, **entry)
    until = datetime.now() + timedelta(seconds=entry["for"]) if "for" in entry else None
    deadline = time.monotonic() + (LOOK_S if within is None else within)
    while not (met := fired["effect"] or fired.get("met")) and "ended" not in fired:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
        fired = control.get_fault(fired["id"])
    subject, ending = f"{verb} {fired['target']}", _how_it_ends(fired["id"], until)
    if not met and "ended" in fired:
        raise click.ClickException(f"{subject}: it met no traffic, and is over")
    if not met and within is not None:
        raise click.ClickException(
            f"{subject}: no traffic has met it within {within:g} s; {ending}"
        )
    click.echo(fault_line(fired) if met else f"{subject}: it is on, and no traffic has met it yet")
    if "ended" not in fired:
        click.echo(ending)


def _how_it_ends(number: int, until: datetime | None) -> str:
    command = f"`highwater fault end {number}`"
    if until is None:
        return f"{command} ends it"
    return f"it goes on until {until:%H:%M:%S}; {command} ends it before"


def fault_line(fired: dict[str, Any]) -> str:
    effect = fired["effect"] or f"has met {fired.get('met', 0)} streams or messages"
    return f"{fired['name']} {fired['target']}: {effect}"
