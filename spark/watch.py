"""Watches a run, by Spark's Structured Streaming: names what is broken, and ends.

    spark-submit spark/watch.py RUN
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 spark/watch.py RUN \
        --bootstrap 127.0.0.1:9092 --topics safe,lossy

RUN is the folder of a run that goes on, or of a history of one's own (docs/history.md): its
history.jsonl may still be empty.  With --bootstrap the topics are read beside it, by Kafka's own
Java client inside Spark: the independent reader.

A broken promise is a line on the terminal and in RUN/watch/alarms.jsonl: rule, topic, partition,
offset, seconds since its record.  The job ends with 1 after the first one (--go-on: at its end),
with 0 when it is told to end (touch RUN/watch/stop, --seconds, Ctrl-C) and nothing was broken, and
with 3 where RUN cannot be watched.  A new start goes on from RUN/watch, and tells nothing twice.
docs/spark.md has more.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Highwater is beside this folder (a clone), around it (a wheel), or comes by --py-files
for place in Path(__file__).resolve().parents[1:3]:
    if (place / "highwater" / "__init__.py").is_file():
        sys.path.insert(0, str(place))

from highwater.verdict.watching.job import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
