"""docs/rules.md: every rule, its promise, where it is checked, and the evidence that it can fail.

python -m tests.rules_page > docs/rules.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from highwater.simulation.rules import sim_checks
from highwater.simulation.rules.rule_list import RULES, Rule
from highwater.verdict import catalog
from highwater.verdict.contracts.tables import ASKS, rules_folder
from highwater.verdict.location import spark_folder
from tests.planted.contracts import PLANTS as CONTRACTS
from tests.planted.stories import PLANTS
from tests.simulation.mutation import all_mutants

PAGE = Path(__file__).parents[1] / "docs" / "rules.md"
SIMULATED = Path(__file__).parents[1] / "highwater" / "simulation"

HEAD = """\
# The rules

Made by `python -m tests.rules_page > docs/rules.md` from the heads of the SQL files, the list of
the simulation's own rules, the planted histories and the mutants.

A rule is a promise and what breaks it. Rules C, T, G, S and L are about what clients can see: they
are SQL files in `spark/checks`, run by Spark and by DuckDB on the folder of a run, and the
simulation checks most of them as it goes. Rules R are about what brokers hold, on their disks and
in memory: the simulation checks them after each step. A number that is missing is not used.

The *witness* says who vouches for a rule, so that no broker is asked about itself. Of rules C, T,
G, S and L it is the history: what clients sent, were told and read, and of some the segments on the
brokers' disks. Looking changes nothing there, as files are read when the run is over; where it
could change something in a rule R, its witness says so.

A *planted history* is a small run with one known fault: the rule must flag it, in both engines. A
*mutant* is a broken broker: [mutants-sim.md](mutants-sim.md) says how many seeds it takes to find
it. The numbers of the mutants here are those whose list of rules names the rule.
"""
NEEDS = {
    "": "",
    "full read": "a full read at the end",
    "final read": "the harness's own read at the end",
    "producer epochs": "the brokers' segments, or the harness's own read at the end",
}
NO_PLANT = "none: it is about a whole run, and has unit tests"


def source_of(sql: str) -> str:
    found = re.search(r"^-- source: (.+)$", sql, re.MULTILINE)
    assert found is not None, f"its head names no source: {sql.splitlines()[0]}"
    return found[1]


def plants_of(rule: str) -> list[str]:
    """Those that break it; of a rule that never calls anything wrong, those that it counts in."""
    wrong = sorted(plant.name for plant in PLANTS if rule in plant.violations)
    return wrong or sorted(plant.name for plant in PLANTS if rule in plant.apart)


def mutants_of(rule: str) -> list[int]:
    return sorted(mutant.id for mutant in all_mutants() if rule in mutant.rules)


def simulated_ids() -> set[str]:
    """Every rule that the simulation can report as broken."""
    text = "\n".join(path.read_text() for path in sorted(SIMULATED.rglob("*.py")))
    named = re.findall(r'(?:broken|hold|Violation)\(\s*(?:[^()"]*,\s*)?"([CTGLRS]\d+)"', text)
    return {*named, *sim_checks.CHECKS, *sim_checks.OF_TRANSACTIONS}


def modules_of(rule: str) -> list[str]:
    """The modules of the simulation that report it as broken."""
    files = [
        path for path in SIMULATED.rglob("*.py") if path.stem not in ("rule_list", "self_test")
    ]
    return sorted(path.stem for path in files if f'"{rule}"' in path.read_text())


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- {name}: {value}\n" for name, value in pairs if value)


def _numbers(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def clients_rules() -> Iterator[str]:
    simulated = simulated_ids()
    for check in catalog.checks():
        sql = (spark_folder() / "checks" / f"{check.id}.sql").read_text()
        also = ", and in the simulation" if check.id in simulated else ""
        facts = [
            ("source", source_of(sql)),
            ("checked in", f"`spark/checks/{check.id}.sql`{also}"),
            ("needs", NEEDS[check.needs]),
            ("planted histories", ", ".join(plants_of(check.id)) or NO_PLANT),
            ("mutants", _numbers(mutants_of(check.id))),
        ]
        yield f"### {check.id} {check.name}\n\n{check.about}\n\n{_facts(facts)}"


def contracts_rules() -> Iterator[str]:
    for check in catalog.checks(rules_folder()):
        plants = [p.name for p in CONTRACTS if check.id in {rule for rule, *_ in p.found}]
        facts = [
            ("demanded by", ", ".join(f"`{a}`" for a, ids in ASKS.items() if check.id in ids)),
            ("checked in", f"`spark/contracts/checks/{check.id}.sql`"),
            ("planted topics", ", ".join(sorted(plants))),
        ]
        yield f"### {check.id} {check.name}\n\n{check.about}\n\n{_facts(facts)}"


def brokers_rule(rule: Rule) -> str:
    modules = ", ".join(f"`{name}`" for name in modules_of(rule.id))
    facts = [
        ("source", rule.source),
        ("witness", rule.witness),
        ("checked in", f"highwater/simulation: {modules}"),
        ("mutants", _numbers(mutants_of(rule.id))),
    ]
    return f"### {rule.id} {rule.name}\n\n{rule.promise}\n\n{_facts(facts)}"


def render() -> str:
    return "\n".join(
        [
            HEAD,
            "## What clients see\n",
            *clients_rules(),
            "## What a contract demands\n",
            "Rules of `highwater verify --contract`, about users' own topics: "
            "[contract.md](contract.md). Their source is the contract. Simulation and mutants do "
            "not reach them: topics are planted.\n",
            *contracts_rules(),
            "## What brokers hold\n",
            *map(brokers_rule, RULES),
        ]
    )


if __name__ == "__main__":
    print(render(), end="")
