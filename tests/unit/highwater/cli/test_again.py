"""The command that repeats a run."""

from __future__ import annotations

from typing import Any

import click
from click.testing import CliRunner

from highwater.cli.again import command_again
from highwater.cli.option_values import named_values


@click.command("chaos")
@click.option("--seed", type=int)
@click.option("--duration", type=float, default=60.0)
@click.option("--workload", "workloads", multiple=True)
@click.option("--override", "overrides", multiple=True, callback=named_values)
@click.option("--secure", is_flag=True)
@click.option("--keep", is_flag=True)
@click.option("--kill-command", default="")
@click.option("--out")
def chaos(**_: Any) -> None:
    click.echo(command_again(7))


def again(*words: str) -> str:
    done = CliRunner().invoke(chaos, words)
    assert done.exit_code == 0, done.output
    return done.output.strip()


def test_it_has_the_seed_and_what_was_given() -> None:
    assert again() == "highwater chaos --seed=7"
    words = ["--duration=5", "--workload=groups", "--workload", "share", "--secure"]
    said = "highwater chaos --seed=7 --duration=5.0 --workload=groups --workload=share --secure"
    assert again(*words) == said


def test_where_the_run_was_put_is_not_repeated() -> None:
    assert again("--seed=3", "--out=runs/3", "--keep") == "highwater chaos --seed=7"


def test_secrets_stay_out() -> None:
    given = ["--override", "ssl.key.password=top", "--override", "num.io.threads=2"]
    said = again(*given, "--kill-command", "ssh root@10.0.0.1 -i key")
    assert "top" not in said
    assert "root" not in said
    assert "'--override=ssl.key.password=…' --override=num.io.threads=2" in said
