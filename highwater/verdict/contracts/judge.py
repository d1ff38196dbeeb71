"""The verdict on a contract, from an engine's findings.

* invalid: a rule found a violation;
* void: nothing was shown, because a topic has no record, no record has a field that the contract
  names, or a rule examined nothing;
* valid: neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from highwater.verdict.contracts import tables
from highwater.verdict.contracts.contract_model import Contract
from highwater.verdict.decision import outcome_of, word_of
from highwater.verdict.headline import story
from highwater.verdict.results import Results
from highwater.verdict.verdict import EXIT_CODES, CheckOutcome, Word

EXAMPLES = 10
"""How many offenders of each rule are named by default."""


@dataclass(slots=True)
class Judgement:
    """The content of a contract's verdict.json."""

    verdict: Word
    headline: str
    contract: str
    isolation: str
    records: dict[str, int]
    """Topic -> how many records were read."""
    checks: dict[str, CheckOutcome]
    notes: list[str]
    engine: str
    version: str
    seconds: float

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def judge(contract: Contract, found: Results, notes: Sequence[str] = ()) -> Judgement:
    coverage: list[dict[str, Any]] = found["facts"]["coverage"]
    records = {row["topic"]: row["records"] for row in coverage}
    outcomes = {c.id: outcome_of(c, found["checks"][c.id], True) for c in tables.demanded(contract)}
    missing = list(_missing(contract, coverage))
    missing += [
        f"{id_} {o.name} examined nothing"
        for id_, o in outcomes.items()
        if o.status == "void" and not missing
    ]
    word = word_of(outcomes)
    if missing and word == "valid":
        word = "void"
    return Judgement(
        verdict=word,
        headline=_headline(word, found, outcomes, missing, sum(records.values())),
        contract=contract.file,
        isolation=contract.isolation,
        records={name: records.get(name, 0) for name in contract.topics},
        checks=outcomes,
        notes=[*(f"void: {told}" for told in missing), *notes],
        engine=found["engine"],
        version=found["version"],
        seconds=found["seconds"],
    )


def _missing(contract: Contract, coverage: Sequence[dict[str, Any]]) -> Iterator[str]:
    present = {(row["topic"], row["field"]): row["present"] for row in coverage}
    for topic in contract.topics.values():
        if (topic.name, "key") not in present:
            yield f"{topic.name} holds no record"
            continue
        for name, source in topic.looked_for.items():
            if not present[topic.name, name]:
                yield f"no record of {topic.name} has {source['told']} (topics.{topic.name}.{name})"


def _headline(
    word: Word,
    found: Results,
    outcomes: dict[str, CheckOutcome],
    missing: Sequence[str],
    records: int,
) -> str:
    if word == "invalid":
        id_ = next(i for i, o in outcomes.items() if o.status == "violated")
        examples = found["checks"][id_]["examples"]
        return story(next(e for e in examples if e["kind"] == "violation"))
    if word == "valid":
        return f"{records:,} records, and the contract is kept"
    return f"this proves nothing: {missing[0]}"
