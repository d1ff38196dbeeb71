"""The verdict on a run: its history, and SQL checks over it, in Spark and in DuckDB.

`runner.run(folder)` checks a run's folder by both and writes its verdict.json.  The job for
spark-submit is `spark/verify.py`: what it imports of this package needs the standard library and
PySpark alone, and a test holds it to that.
"""
