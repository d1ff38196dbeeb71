"""docs/rules.md leaves no rule out, and names the place of each check."""

from __future__ import annotations

from highwater.simulation.rules.rule_list import RULES
from highwater.verdict import catalog
from tests import rules_page


def test_the_page_is_made_of_the_rules() -> None:
    assert rules_page.PAGE.read_text() == rules_page.render(), "python -m tests.rules_page"


def test_every_rule_that_can_be_broken_has_an_entry() -> None:
    known = {check.id for check in catalog.checks()} | {rule.id for rule in RULES}
    reported = rules_page.simulated_ids()
    assert {"R1", "R12", "C7", "L5", "T1"} <= reported
    assert reported <= known


def test_every_rule_of_brokers_is_checked_somewhere() -> None:
    assert [rule.id for rule in RULES if not rules_page.modules_of(rule.id)] == []


def test_every_check_has_a_planted_history() -> None:
    without = {c.id for c in catalog.checks() if not rules_page.plants_of(c.id)}
    assert without == {"L1", "L4"}, "these are about a whole run"
