"""The verdict on a run: SQL checks over its history, in Spark and in DuckDB.

`run(folder)` checks a run's folder and writes its verdict.json.
"""

from highwater.verdict.runner import run
from highwater.verdict.verdict import CheckOutcome, Verdict

__all__ = ["CheckOutcome", "Verdict", "run"]
