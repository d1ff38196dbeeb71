"""The verdict on a run: SQL checks over its history, in Spark and in DuckDB.

`run(folder)` checks a run's folder and writes its verdict.json.
"""

from highwater.chaos.checks.runner import run
from highwater.chaos.checks.verdict import CheckOutcome, Verdict

__all__ = ["CheckOutcome", "Verdict", "run"]
