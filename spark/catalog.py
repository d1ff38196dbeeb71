"""What the checks read, and where they stand: shared by the jobs for spark-submit and by DuckDB.

A check is one SQL file, `checks/ID.sql`, in the common subset of Spark SQL 4.0 and DuckDB.  Its
head is comments:

    -- C4 unseen                 id and name, as in the project's list of checks
    -- required: yes             a run in which it examined nothing is void
    -- needs: full read          cannot speak without a completed full read at the end, by anybody
    -- needs: final read         ... by the harness's own clients
    -- needs: segments           calls nothing wrong where the brokers' segments were not read
    -- verdict: void             what a violation makes of the run, where not "invalid"

`:examined` marks a query of one number, `:findings` one of (kind, topic, partition, offset,
value, detail), where kind is `violation`, `expected` (a loss that the topic's promise allows) or
`counted` (worth a number, wrong nowhere).

`views/N_name.sql` are the words the checks are written in (sends, reads, ...), built in the order
of their names upon the tables of the run: TABLES.  Three rules keep the files portable: a
column named `offset` is always qualified; no text holds a quotation mark; types are STRING, INT,
BIGINT, DOUBLE, BOOLEAN.

Standard library only: a driver without Highwater must be able to run the jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "history": (
        "history.jsonl",
        {
            "run": "STRING",
            "seed": "BIGINT",
            "index": "BIGINT",
            "process": "STRING",
            "client": "STRING",
            "f": "STRING",
            "type": "STRING",
            "op": "BIGINT",
            "phase": "STRING",
            "t_ns": "BIGINT",
            "topic": "STRING",
            "partition": "INT",
            "key": "STRING",
            "value": "STRING",
            "offset": "BIGINT",
            "leader_epoch": "INT",
            "hw": "BIGINT",
            "lso": "BIGINT",
            "producer_id": "BIGINT",
            "producer_epoch": "INT",
            "sequence": "BIGINT",
            "generation": "INT",
            "error": "STRING",
            "attempt": "INT",
            "connection": "STRING",
            "acks": "INT",
            "idempotent": "BOOLEAN",
            "max_in_flight": "INT",
            "expect_loss": "BOOLEAN",
            "api": "STRING",
            "poll_id": "BIGINT",
            "n": "INT",
            "which": "STRING",
            "group_id": "STRING",
            "member": "STRING",
            "isolation": "STRING",
            "transactional_id": "STRING",
            "txn": "STRING",
            "amount": "BIGINT",
            "copy_of": "STRING",
        },
    ),
    "faults": (
        "faults.jsonl",
        {
            "name": "STRING",
            "target": "STRING",
            "t": "DOUBLE",
            "t_ns": "BIGINT",
            "params": "STRING",
            "effect": "STRING",
            "error": "STRING",
        },
    ),
    "segments": (
        "cluster/records.jsonl",
        {
            "broker": "INT",
            "topic": "STRING",
            "partition": "INT",
            "offset": "BIGINT",
            "leader_epoch": "INT",
            "key": "STRING",
            "value": "STRING",
            "producer_epoch": "INT",
        },
    ),
    "witness": (
        "witness.jsonl",
        {
            "t_ns": "BIGINT",
            "written_ns": "BIGINT",
            "what": "STRING",
            "topic": "STRING",
            "partition": "INT",
            "leader": "INT",
            "leader_epoch": "INT",
        },
    ),
}
"""Table -> (file in the run's folder, columns).  A missing file is an empty table, but for the
history.
"""

TOPICS: dict[str, str] = {"topic": "STRING", "expect_loss": "BOOLEAN", "unclean": "BOOLEAN"}
"""Table `topics`, from run.json."""

CONSUMED: dict[str, str] = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "key": "STRING",
    "value": "STRING",
    "timestamp": "TIMESTAMP",
}
"""Table `consumed`: the Parquet files of the independent reader; empty where there was none."""

FINDING = ("kind", "topic", "partition", "offset", "value", "detail")

FACTS = """
SELECT
  (SELECT count(*) FROM sends s WHERE s.acked) AS acked,
  (SELECT count(*) FROM sends s WHERE s.outcome = 'fail') AS failed,
  (SELECT count(*) FROM sends s WHERE s.outcome = 'info') AS unknown,
  (SELECT count(*) FROM reads r WHERE r.witness <> 'spark') AS polled,
  (SELECT count(*) FROM sends s WHERE s.acked AND s.expect_loss) AS acked_where_loss_is_expected,
  (SELECT count(*) FROM consumed c) AS consumed,
  (
    SELECT max(g.gap_ns)
    FROM (
      SELECT
        lead(s.acked_ns) OVER (PARTITION BY s.binding ORDER BY s.acked_ns) - s.acked_ns AS gap_ns
      FROM sends s WHERE s.binding
    ) g
  ) AS longest_gap_ns
"""
"""Numbers of the run as a whole."""


@dataclass(frozen=True)
class Check:
    """One SQL file."""

    id: str
    name: str
    required: bool
    needs: str
    """"full read", "final read", "segments", or "": nothing but the history."""
    voids: bool
    examined: str
    findings: str


class CatalogError(Exception):
    """A SQL file is not of the form that a check has."""


def ddl(columns: dict[str, str]) -> str:
    """Spark's schema string."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def views(folder: Path = HERE) -> list[tuple[str, str]]:
    """(name, query) in the order in which they are built."""
    files = sorted((folder / "views").glob("*.sql"))
    return [(f.stem.split("_", 1)[1], f.read_text(encoding="utf-8")) for f in files]


def checks(folder: Path = HERE) -> list[Check]:
    """Every check, C1, C2, ... C15, then L1, ..."""
    found = [_parse(f) for f in (folder / "checks").glob("*.sql")]
    return sorted(found, key=lambda check: (check.id[0], int(check.id[1:])))


def examined_query(selected: list[Check]) -> str:
    """All `examined` numbers in one query: (id, examined)."""
    return "\nUNION ALL\n".join(
        f"SELECT '{c.id}' AS id, CAST(e.examined AS BIGINT) AS examined FROM (\n{c.examined}\n) e"
        for c in selected
    )


def findings_query(selected: list[Check], examples: int) -> str:
    """All findings in one query: (id, nth, found, kind, topic, ..., detail), `examples` rows of
    each kind.
    """
    branches = "\nUNION ALL\n".join(
        f"SELECT '{c.id}' AS id, {', '.join(f'f.{name}' for name in FINDING)}"
        f" FROM (\n{c.findings}\n) f"
        for c in selected
    )
    columns = ", ".join(f"g.{name}" for name in FINDING)
    # the engines differ in where they sort NULL
    order = ", ".join(f"u.{name} NULLS FIRST" for name in FINDING[1:])
    return f"""
SELECT g.id, g.nth, g.found, {columns}
FROM (
  SELECT
    u.*,
    count(*) OVER (
      PARTITION BY u.id, u.kind ORDER BY {order}
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    ) AS found,
    row_number() OVER (PARTITION BY u.id, u.kind ORDER BY {order}) AS nth
  FROM (
{branches}
  ) u
) g
WHERE g.nth <= {examples}
ORDER BY g.id, g.kind, g.nth
"""


def _parse(file: Path) -> Check:
    text = file.read_text(encoding="utf-8")
    parts = re.split(r"^-- :(examined|findings)\s*$", text, flags=re.MULTILINE)
    title = re.match(r"-- (\S+) (.+)\n", text)
    if len(parts) != 5 or parts[1] != "examined" or title is None or title.group(1) != file.stem:
        raise CatalogError(
            f"{file}: a check has a first line `-- {file.stem} name`, then a part `-- :examined` "
            "and a part `-- :findings`"
        )
    head = dict(
        re.findall(r"^-- (required|needs|verdict): (.+?)\s*$", parts[0], flags=re.MULTILINE)
    )
    return Check(
        id=file.stem,
        name=title.group(2).strip(),
        required=head.get("required") == "yes",
        needs=head.get("needs", ""),
        voids=head.get("verdict") == "void",
        examined=parts[2].strip(),
        findings=parts[4].strip(),
    )
