"""The tables that the checks read, and the form of the checks: for Spark and for DuckDB.

A check is one SQL file, `spark/checks/ID.sql`, in the common subset of Spark SQL 4.0 and DuckDB.
Its head is comments:

    -- C4 unseen                 id and name, as in the project's list of checks
    -- required: yes             a run in which it examined nothing is void
    -- claim: NAME               ... and so is a history of one's own that claims NAME (CLAIMS)
    -- needs: full read          cannot decide without a full read at the end, by any client
    -- needs: final read         ... by the harness's own clients
    -- needs: producer epochs    finds no violation if neither the brokers' segments nor the
                                 harness's own read at the end shows producers' epochs
    -- source: TEXT              where the promise is from
    -- verdict: void             what a violation makes of the run, where not "invalid"

`:examined` marks a query of one number, `:findings` one of (kind, topic, partition, offset,
value, detail), where kind is `violation`, `expected` (a loss that the topic's promise allows) or
`counted` (worth a number, but no fault).

`spark/views/NN_name.sql` are the views that the checks use (sends, reads, ...), built in the
order of their names from the tables of the run: TABLES.  Three rules keep the files portable: a
column named `offset` is always qualified; no text holds a quotation mark; types are STRING, INT,
BIGINT, DOUBLE, BOOLEAN.

Standard library only: a driver without Highwater must be able to run the jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from highwater.verdict.history_schema import COLUMNS
from highwater.verdict.location import Folder, sql_folder

TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "history": ("history.jsonl", COLUMNS),
    "faults": (
        "faults.jsonl",
        {
            "name": "STRING", "target": "STRING", "t": "DOUBLE", "t_ns": "BIGINT",
            "params": "STRING", "effect": "STRING", "error": "STRING",
        },
    ),
    "segments": (
        "cluster/records.jsonl",
        {
            "broker": "INT", "topic": "STRING", "partition": "INT", "offset": "BIGINT",
            "leader_epoch": "INT", "key": "STRING", "value": "STRING", "producer_epoch": "INT",
        },
    ),
    "witness": (
        "witness.jsonl",
        {
            "t_ns": "BIGINT", "written_ns": "BIGINT", "what": "STRING", "topic": "STRING",
            "partition": "INT", "leader": "INT", "leader_epoch": "INT",
        },
    ),
}  # fmt: skip
"""Table -> (file in the run's folder, columns).  A missing file is an empty table; only the history
must be there.
"""

TOPICS: dict[str, str] = {"topic": "STRING", "expect_loss": "BOOLEAN", "unclean": "BOOLEAN"}
"""Table `topics`, from run.json."""

CONSUMED: dict[str, str] = {
    "topic": "STRING", "partition": "INT", "offset": "BIGINT", "key": "STRING", "value": "STRING",
    "timestamp": "TIMESTAMP",
}  # fmt: skip
"""Table `consumed`: the Parquet files of the independent reader; empty where there was none."""

FINDING_TYPES = {
    "topic": "STRING", "partition": "INT", "offset": "BIGINT", "value": "STRING",
    "detail": "STRING",
}  # fmt: skip
FINDING = ("kind", *FINDING_TYPES)
"""The columns of a check's `:findings`."""
EXAMINED = "examined"
"""The kind of the row with the number examined, in a query that answers both parts of a check."""

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
  ) AS longest_gap_ns,
  (
    SELECT max(s.acked_ns - s.started_ns)
    FROM sends s
    CROSS JOIN (SELECT min(f.t_ns) AS began, max(f.t_ns) AS ended FROM faults f) f
    WHERE s.binding
      AND (f.began IS NULL OR s.acked_ns < f.began OR s.started_ns > f.ended + 8000000000)
  ) AS longest_well_ns
"""
"""The query for the numbers of the run as a whole."""

CLAIMS = """
SELECT n.*, u.*
FROM (
  SELECT
    count(CASE WHEN h.f = 'send' AND coalesce(h.acks, -1) <> 0 THEN 1 END) AS acked,
    count(CASE WHEN h.f = 'send' AND coalesce(h.acks, -1) <> 0 AND h.offset >= 0 THEN 1 END)
      AS acked_at,
    count(CASE WHEN h.f = 'send' AND coalesce(h.acks, -1) = -1
      AND NOT coalesce(h.expect_loss, false) THEN 1 END) AS bound,
    count(CASE WHEN h.f = 'poll' AND h.offset >= 0 THEN 1 END) AS read,
    count(CASE WHEN h.f = 'poll' AND h.offset >= 0
      AND coalesce(h.isolation, '') <> 'read_committed' THEN 1 END) AS read_plainly,
    count(CASE WHEN h.f = 'poll' AND h.offset >= 0 AND coalesce(h.phase, 'run') <> 'final'
      THEN 1 END) AS read_before,
    count(CASE WHEN h.txn IS NOT NULL THEN 1 END) AS in_transactions,
    count(CASE WHEN h.f = 'send' AND h.client = 'confluent-kafka' THEN 1 END) AS by_librdkafka
  FROM history h
  WHERE h.type = 'ok'
) n
CROSS JOIN (
  SELECT
    count(DISTINCT CASE WHEN r.began IS NULL OR r.began < l.ended THEN
      concat(l.topic, '-', CAST(l.partition AS STRING)) END) AS unread,
    min(CASE WHEN r.began IS NULL OR r.began < l.ended THEN
      concat(l.topic, '-', CAST(l.partition AS STRING)) END) AS first_unread
  FROM (
    SELECT h.topic, h.partition, max(h.t_ns) AS ended
    FROM history h
    WHERE h.type = 'ok' AND coalesce(h.phase, 'run') <> 'final'
      AND (h.f = 'send' OR (h.f = 'poll' AND h.offset >= 0))
    GROUP BY h.topic, h.partition
  ) l
  LEFT JOIN (
    SELECT f.topic, f.partition, max(f.began) AS began
    FROM (
      SELECT
        max(h.topic) AS topic, max(h.partition) AS partition,
        min(CASE WHEN h.type = 'invoke' THEN h.t_ns END) AS began,
        max(CASE WHEN h.type = 'ok' THEN 1 ELSE 0 END) AS whole
      FROM history h
      WHERE h.f = 'full_read'
      GROUP BY h.op
    ) f
    WHERE f.whole = 1
    GROUP BY f.topic, f.partition
  ) r ON r.topic = l.topic AND r.partition = l.partition
) u
"""
"""The claims of a user's own history (a folder without run.json): the answers of each kind, and the
partitions that no process read whole (`full_read`) after the last answer in them.  They are counted
in the history's lines and not in the views that the checks use."""


@dataclass(frozen=True)
class Check:
    """One SQL file."""

    id: str
    name: str
    required: bool
    claim: str
    """A column of CLAIMS, or "": the check is required for a user's own history that claims it."""
    needs: str
    """"full read", "final read", "producer epochs", or "": nothing but the history."""
    voids: bool
    examined: str
    findings: str
    about: str = ""
    """What it finds, in sentences: the comments at its head, without the settings."""


class CatalogError(Exception):
    """A SQL file does not have the form of a check."""


def ddl(columns: dict[str, str]) -> str:
    """Spark's schema string."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def views(folder: Folder | None = None) -> list[tuple[str, str]]:
    """(name, query) in the order in which they are built; `folder` holds other SQL files."""
    files = sorted(_sql_files(folder, "views"), key=lambda f: f.name)
    return [(f.stem.split("_", 1)[1], f.read_text(encoding="utf-8")) for f in files]


def checks(folder: Folder | None = None) -> list[Check]:
    """Every check, C1, C2, ... C15, then L1, ..."""
    found = [_parse(f) for f in _sql_files(folder, "checks")]
    return sorted(found, key=lambda check: (check.id[0], int(check.id[1:])))


def examined_query(selected: list[Check]) -> str:
    """All `examined` numbers in one query: (id, examined)."""
    return "\nUNION ALL\n".join(
        f"SELECT '{c.id}' AS id, CAST(e.examined AS BIGINT) AS examined FROM (\n{c.examined}\n) e"
        for c in selected
    )


def check_query(check: Check, examples: int) -> str:
    """One check by itself: a row of kind EXAMINED whose `found` is the number, and the findings as
    in `findings_query`.
    """
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in FINDING_TYPES.items())
    return f"""
SELECT 1 AS nth, CAST(e.examined AS BIGINT) AS found, '{EXAMINED}' AS kind, {nothing}
FROM (
{check.examined}
) e
UNION ALL
{_first_of_each_kind(f"SELECT f.* FROM ({chr(10)}{check.findings}{chr(10)}) f", "kind", examples)}
"""


def findings_query(selected: list[Check], examples: int) -> str:
    """All findings in one query: (id, nth, found, kind, topic, ..., detail), `examples` rows of
    each kind.
    """
    branches = "\nUNION ALL\n".join(
        f"SELECT '{c.id}' AS id, {', '.join(f'f.{name}' for name in FINDING)}"
        f" FROM (\n{c.findings}\n) f"
        for c in selected
    )
    return f"""
{_first_of_each_kind(branches, "id, kind", examples)}
ORDER BY g.id, g.kind, g.nth
"""


def _first_of_each_kind(branches: str, by: str, examples: int) -> str:
    """(`by`, nth, found, kind, topic, ...): the first rows in the order of FINDING, numbered."""
    kinds = ", ".join(f"u.{name}" for name in by.split(", "))
    # the engines would sort NULL at different ends
    order = ", ".join(f"u.{name} NULLS FIRST" for name in FINDING[1:])
    ids = "g.id, " if "id" in by.split(", ") else ""
    return f"""
SELECT {ids}g.nth, g.found, {", ".join(f"g.{name}" for name in FINDING)}
FROM (
  SELECT
    u.*,
    count(*) OVER (
      PARTITION BY {kinds} ORDER BY {order}
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    ) AS found,
    row_number() OVER (PARTITION BY {kinds} ORDER BY {order}) AS nth
  FROM (
{branches}
  ) u
) g
WHERE g.nth <= {examples}
"""


def _sql_files(folder: Folder | None, room: str) -> list[Folder]:
    return [f for f in ((folder or sql_folder()) / room).iterdir() if f.suffix == ".sql"]


def _parse(file: Folder) -> Check:
    text = file.read_text(encoding="utf-8")
    parts = re.split(r"^-- :(examined|findings)\s*$", text, flags=re.MULTILINE)
    title = re.match(r"-- (\S+) (.+)\n", text)
    if len(parts) != 5 or parts[1] != "examined" or title is None or title.group(1) != file.stem:
        raise CatalogError(
            f"{file}: a check has a first line `-- {file.stem} name`, then a part `-- :examined` "
            "and a part `-- :findings`"
        )
    head = dict(
        re.findall(r"^-- (required|claim|needs|verdict): (.+?)\s*$", parts[0], flags=re.MULTILINE)
    )
    return Check(
        id=file.stem,
        name=title.group(2).strip(),
        required=head.get("required") == "yes",
        claim=head.get("claim", ""),
        needs=head.get("needs", ""),
        voids=head.get("verdict") == "void",
        examined=parts[2].strip(),
        findings=parts[4].strip(),
        about=_in_words(parts[0]),
    )


def _in_words(head: str) -> str:
    lines = [line.removeprefix("--").strip() for line in head.splitlines()[1:]]
    settings = re.compile(r"(required|claim|needs|source|verdict): ")
    text = "\n".join(line for line in lines if not settings.match(line)).strip()
    return text.replace("  ", " ")
