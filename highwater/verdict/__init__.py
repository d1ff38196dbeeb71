"""The verdict on a run: its history, and SQL checks over it, in Spark and in DuckDB.

`runner.run(folder)` checks a run's folder and writes its verdict.json.  What a Spark driver needs
of this package (`history_schema`) imports the standard library alone, so nothing is imported here.
"""
