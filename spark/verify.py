"""The verdict on a run, by Spark: runs the checks over a run's history and consumed data.

    spark-submit spark/verify.py RUN
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 spark/verify.py RUN \
        --bootstrap 127.0.0.1:9092

RUN and --out are any paths that Spark can read and write (file:, hdfs:, s3a:), and --master is
anything.  RUN holds the tables as JSON lines (history.jsonl, ...) or as Parquet
(tables/NAME.parquet); RUN/consumed holds the independent reader's Parquet files, and may be
missing.  With --bootstrap the job reads the topics first, as ingest.py does, in the same session.

Prints the table of `highwater verify`, writes verdict.json, and ends with 0 (valid), 1 (invalid),
2 (void or unknown) or 3 (RUN cannot be checked).  The checks are the SQL files in checks/, in the
words of views/; `highwater.verdict.catalog` says how they are written.  docs/spark.md is the
page on all this.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Highwater is beside this folder (a clone), around it (a wheel), or comes by --py-files
for place in Path(__file__).resolve().parents[1:3]:
    if (place / "highwater" / "__init__.py").is_file():
        sys.path.insert(0, str(place))

from highwater.verdict.by_spark.spark_job import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
