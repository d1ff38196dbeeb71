"""From the checks' findings to one word: valid, invalid, unknown or void.

* invalid: a check found a violation.  Nothing excuses it, not even a void run.
* void: the run proves nothing.  It was interrupted, an operation never succeeded, a fault had no
  visible effect or never fired, a check examined nothing, or an arranged loss was not seen: a
  harness that cannot see the expected loss would not see another one either.
* unknown: a check could not be decided (no full read at the end, the engines disagree).
* valid: none of these.

A user's own history (without run.json) is judged by what it claims to contain: `catalog.CLAIMS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from highwater.verdict import catalog
from highwater.verdict.headline import counted, headline
from highwater.verdict.results import Finding, Found, Results
from highwater.verdict.verdict import CheckOutcome, Verdict, Word

SEEN = (
    "not_leader",
    "leader_changes",
    "isr_shrinks",
    "isr_expands",
    "truncated_bytes",
    "hw_below_leo_at_leader_death",
    "controller_moves",
)
OPERATIONS = ("acked", "failed", "unknown", "polled")
PRODUCER_EPOCHS = "producer epochs"
CLAIMED = {
    "acked": "acknowledged writes",
    "read": "records that were read",
    "in_transactions": "answers in transactions",
}
"""Columns of `catalog.CLAIMS` that the verdict shows, in words."""
ZOOKEEPERS = {
    "java": "ZooKeeper's own server",
    "embedded": "Highwater's (embedded)",
    "elsewhere": "one that ran before",
}
INTERRUPTED = "the run was interrupted before everything was read back"


def decide(
    results: Results,
    info: dict[str, Any],
    faults: Sequence[dict[str, Any]],
    *,
    final_read: bool,
    read_by_others: bool = False,
    disagreements: Sequence[str] = (),
) -> Verdict:
    """The verdict.  `results` is an engine's output; `info` is run.json (empty if there is none).

    `final_read`: the harness's own full read at the end reached the end of every partition;
    `read_by_others`: an independent client's read did.
    """
    claims = {} if info else results.get("claims", {})
    if claims:
        final_read = claims["read"] > 0 and not claims["unread"]
    finished = bool(info.get("finished", True))
    on_disk = "segments" not in info.get("lacks", {})
    full_read = final_read or read_by_others
    # others do not read under read_committed, so with transactions their read decides nothing
    decided = final_read or (full_read and finished and not results["checks"]["T3"]["examined"])
    there = {
        "": True,
        PRODUCER_EPOCHS: finished and not claims.get("by_librdkafka") and (on_disk or final_read),
        "full read": full_read,
        "final read": decided,
    }
    required = {c.id: bool(claims.get(c.claim, c.required)) for c in catalog.checks()}
    outcomes = {
        c.id: outcome_of(
            replace(c, required=required[c.id]), results["checks"][c.id], there[c.needs]
        )
        for c in catalog.checks()
    }
    expected_losses = outcomes["C4"].expected
    facts = results["facts"]
    loss_arranged = (
        bool(info.get("loss_arranged", not claims)) and facts["acked_where_loss_is_expected"] > 0
    )
    loss_unseen = finished and loss_arranged and not expected_losses
    missing = _vacuities(outcomes, info, faults, loss_unseen)
    if not finished:
        missing.insert(0, INTERRUPTED)
    missing[:0] = _unclaimed(claims, read_by_others)
    outcomes["L4"].violations += len(missing)
    outcomes["L4"].examples = [*outcomes["L4"].examples, *missing]
    if outcomes["L4"].violations:
        outcomes["L4"].status = "void"
    if info:
        outcomes |= _cluster_checks(info)
        outcomes["L2"] = _health(info, finished)
    notes = _notes(outcomes, disagreements, _why_undecided(outcomes, there))
    notes += _what_the_source_gave(claims, required, info)
    verdict = Verdict(
        verdict=word_of(outcomes, disagreements),
        seed=info.get("seed"),
        runtime=info.get("runtime"),
        checks=outcomes,
        seen=dict.fromkeys(SEEN, 0) | dict(info.get("seen", {})),
        expected_losses=expected_losses,
        operations={name: facts[name] for name in OPERATIONS},
        faults=[{k: f.get(k) for k in ("name", "target", "t", "effect")} for f in faults],
        notes=notes,
        longest_gap_ms=_ms(facts["longest_gap_ns"]),
        longest_while_well_ms=_ms(facts["longest_well_ns"]),
        engine=results["engine"],
    )
    if (longest := verdict.longest_while_well_ms) is not None:
        notes.append(
            f"before the first fault, and long after the last one, an acknowledgement took "
            f"{longest / 1000:.2f} s at most"
        )
    verdict.headline = headline(verdict, {i: r["examples"] for i, r in results["checks"].items()})
    return verdict


def _ms(ns: int | None) -> int | None:
    return None if ns is None else ns // 1_000_000


def _what_the_source_gave(
    claims: dict[str, Any], required: dict[str, bool], info: dict[str, Any]
) -> list[str]:
    """Notes on what the verdict rests on: the claims of a user's own history, or the evidence that
    the target cannot give."""
    notes = []
    if claims:
        told = ", ".join(id_ for id_, owed in required.items() if owed)
        held = ", ".join(f"{claims[name]:,} {what}" for name, what in CLAIMED.items())
        notes.append(f"a history of one's own, of {held}; so required are {told}")
    if (security := info.get("security", "plaintext")) != "plaintext":
        notes.append(
            f"clients came by {security.upper()}, as a user with rights for the run's topics alone"
        )
    if (zookeeper := info.get("zookeeper")) in ZOOKEEPERS:
        notes.append(f"the brokers' ZooKeeper was {ZOOKEEPERS[zookeeper]}")
    if lacking := ", ".join(info.get("lacks", {})):
        notes.append(f"{info.get('target')} has no {lacking}; what needs it was not checked")
    return notes


def outcome_of(check: catalog.Check, result: Found, has_what_it_needs: bool) -> CheckOutcome:
    found = result["found"]
    violations = found.get("violation", 0)
    outcome = CheckOutcome(
        name=check.name,
        status="violated" if violations else "passed",
        examined=result["examined"],
        violations=violations,
        expected=found.get("expected", 0),
        counted=found.get("counted", 0),
        examples=[readable(e) for e in _violations_first(result["examples"])],
    )
    if not has_what_it_needs and (check.needs != PRODUCER_EPOCHS or violations):
        outcome.status, outcome.violations = "unknown", 0
    elif not violations and not check.required and not outcome.examined:
        outcome.status = "idle"
    elif (check.voids and violations) or (
        check.required and not outcome.examined and not violations
    ):
        outcome.status = "void"
    return outcome


def _violations_first(examples: Sequence[Finding]) -> list[Finding]:
    order = {"violation": 0, "expected": 1, "counted": 2}
    return sorted(examples, key=lambda e: order[e["kind"]])


def readable(example: Finding) -> str:
    """`orders-0 offset 17, value r1|p|3: was acknowledged to p (acks -1) and is in no read`"""
    where = ""
    if example["topic"] is not None:
        partition = example["partition"]
        where = str(example["topic"]) + ("" if partition is None else f"-{partition}")
    if example["offset"] is not None:
        where += f" offset {example['offset']}"
    if example["value"] is not None:
        where += f", value {str(example['value'])[:60]}"
    prefix = "" if example["kind"] == "violation" else f"({example['kind']}) "
    return f"{prefix}{where}: {example['detail']}" if where else f"{prefix}{example['detail']}"


def _vacuities(
    outcomes: dict[str, CheckOutcome],
    info: dict[str, Any],
    faults: Sequence[dict[str, Any]],
    loss_unseen: bool,
) -> list[str]:
    found = [
        f"{id_} examined nothing"
        for id_, o in outcomes.items()
        if o.status == "void" and id_ != "L4"
    ]
    planned = int(info.get("planned_faults") or 0)
    if planned > len(faults):
        found.append(f"{planned} faults were planned, {len(faults)} fired")
    if loss_unseen:
        found.append("no acknowledged record was lost on the topic that was to lose some (acks=1)")
    return found


def _unclaimed(claims: dict[str, Any], read_by_others: bool) -> list[str]:
    """The parts that every user's own history needs and this one lacks."""
    if not claims:
        return []
    found = [
        f"the history holds no {CLAIMED[name]}" for name in ("acked", "read") if not claims[name]
    ]
    if claims["unread"] and not read_by_others:
        found.append(
            f"{claims['first_unread']} was not read whole (full_read) after the last answer in it"
            + (f", nor were {claims['unread'] - 1} more partitions" * (claims["unread"] > 1))
        )
    return found


def _cluster_checks(info: dict[str, Any]) -> dict[str, CheckOutcome]:
    """R2, R5, ...: the witnesses' findings in ZooKeeper and on the brokers' disks."""
    return {
        rule: CheckOutcome(
            name=found["name"],
            status="violated" if found["violations"] else "passed" if found["examined"] else "idle",
            examined=found["examined"],
            violations=found["violations"],
            examples=list(found["examples"]),
        )
        for rule, found in sorted(
            info.get("cluster_checks", {}).items(), key=lambda item: (item[0][0], int(item[0][1:]))
        )
    }


def _health(info: dict[str, Any], finished: bool) -> CheckOutcome:
    problems = [str(p) for p in info.get("problems", [])]
    if finished and not info.get("healed", True):
        problems.insert(0, "the cluster did not become whole again after healing")
    return CheckOutcome(
        name="health",
        status="violated" if problems else "passed" if finished else "unknown",
        examined=int(finished),
        violations=len(problems),
        examples=problems[:5],
    )


def word_of(outcomes: dict[str, CheckOutcome], disagreements: Sequence[str] = ()) -> Word:
    statuses = {o.status for o in outcomes.values()}
    if "violated" in statuses:
        return "invalid"
    if "void" in statuses:
        return "void"
    if "unknown" in statuses or disagreements:
        return "unknown"
    return "valid"


def _why_undecided(outcomes: dict[str, CheckOutcome], there: dict[str, bool]) -> dict[str, str]:
    """Check -> why it could not be decided."""
    of_epochs = {c.id for c in catalog.checks() if c.needs == PRODUCER_EPOCHS}
    return {
        i: "nothing tells the producer epochs of copies that librdkafka may have made by itself"
        if i in of_epochs and there["full read"]
        else "no full read at the end reached all offsets"
        for i, o in outcomes.items()
        if o.status == "unknown"
    }


def _notes(
    outcomes: dict[str, CheckOutcome], disagreements: Sequence[str], undecided: dict[str, str]
) -> list[str]:
    notes = [
        f"{i} {o.name}: {counted(o.violations, 'violation')}"
        for i, o in outcomes.items()
        if o.status == "violated"
    ]
    if outcomes["L4"].status == "void":
        notes += [f"void: {example}" for example in outcomes["L4"].examples]
    for why in dict.fromkeys(undecided.values()):
        ids = ", ".join(i for i, its in undecided.items() if its == why)
        notes.append(f"{why}: {ids} undecided")
    return notes + [f"the engines disagree: {d}" for d in disagreements]
