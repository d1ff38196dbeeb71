"""The list of parts makes the flags of `highwater sim`, the fields of Options, and the runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from highwater.cli.sim import sim, switches
from highwater.kafka.types import TopicPartition
from highwater.simulation.options import Options, with_flags
from highwater.simulation.part_list import PARTS, SWITCHES
from highwater.simulation.seed_run import simulate
from highwater.simulation.workloads.part import Part, Topic, Works
from highwater.simulation.workloads.plain_client import SimClient

PAGE = Path(__file__).parents[4] / "docs" / "simulation.md"


class Toy(Part):
    flag, help = "toy_box", "A client that asks for its topic."
    topics = (Topic("toys", 2),)
    last = "tidy"

    def clients(self) -> Works:
        return {"child": self.play}

    async def play(self, client: SimClient) -> None:
        while not self.resting:
            await client.refresh(["toys"])
            self.count["toys: asked for"] += 1
            await client.pause()

    async def judge(self, client: SimClient) -> None:
        there = TopicPartition("toys", 1) in self.rules.partitions
        self.rules.broken("X1", f"{client.name} looks; its topic is there: {there}")


@with_flags((*PARTS, Toy))
class WithToys(Options):
    """The options with one more row in the list."""


def test_a_row_is_a_flag_of_the_command() -> None:
    @click.command()
    @switches((*PARTS, Toy))
    def command(**switched: bool) -> None:
        click.echo(sorted(name for name, given in switched.items() if given))

    assert Toy.help in CliRunner().invoke(command, ["--help"]).output
    assert CliRunner().invoke(command, ["--toy-box", "--flush"]).output == "['flush', 'toy_box']\n"


def test_a_row_is_an_option_that_is_run_and_judged() -> None:
    short: dict[str, Any] = {"seconds": 1.0, "pace": 0.1, "faults": False, "sql": False}
    plain, toys = WithToys(**short), WithToys(**short, toy_box=True)
    assert (plain.toy_box, toys.toy_box, Toy in plain.parts, Toy in toys.parts) == (0, 1, 0, 1)
    outcome = simulate(1, toys)
    assert outcome.violation is not None
    assert outcome.violation.rule == "X1"
    assert outcome.violation.what == "tidy looks; its topic is there: True"
    assert outcome.operations["toys: asked for"] > 0
    assert simulate(1, plain).digest == simulate(1, Options(**short)).digest != outcome.digest


def test_the_flags_are_those_of_the_page() -> None:
    named = {f"--{flag.replace('_', '-')}" for flag in SWITCHES}
    options = {name for one in sim.params for name in (*one.opts, *one.secondary_opts)}
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE.read_text()))
    assert named <= told
    assert told - {"--master", "--out"} <= options, "the two are options of Spark's job"
