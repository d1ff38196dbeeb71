"""A run's folder as Spark's tables, from any store, and the views on them.

A table is read from RUN/tables/NAME.parquet (which `highwater verify` writes) if that is not older
than the JSON lines from which it was made and has the columns of the catalog; else from the JSON
lines.  If it cannot be read, there is a one-line error (RunDamaged), so that no check silently sees
less.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from highwater.verdict import catalog
from highwater.verdict.by_spark.spark_session import PARQUET_SHRINKS, Shape
from highwater.verdict.by_spark.spark_steps import Step
from highwater.verdict.by_spark.spark_store import Store
from highwater.verdict.location import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAMAGED: Final = "_damaged"
"""The column for a line that is not JSON, or whose fields have wrong types."""

BY_VALUE: Final = ("topic", "value")
SORTED: Final = {"reads": BY_VALUE, "sends": BY_VALUE, "placed": BY_VALUE}
"""Views whose rows are sorted, and in a large run spread, by the columns by which most checks join
them."""
AS_MADE: Final = ("places",)
"""Views whose computation leaves them spread by topic and partition, and sorted."""


class RunDamaged(Exception):
    """The run's folder cannot be checked; the message says what is wrong with it."""


@dataclass(slots=True)
class Run:
    """One folder, and how its tables are to be laid out."""

    spark: SparkSession
    store: Store
    path: str
    shape: Shape
    notes: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    """Table -> its number of rows, for those in catalog.TABLES."""

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"


def json_bytes(store: Store, run: str) -> int:
    """The size of the history as JSON lines; raises RunDamaged where there is no history."""
    size = store.bytes_in(f"{run}/history.jsonl")
    columns = store.bytes_in(f"{run}/tables/history.parquet") * PARQUET_SHRINKS
    if not size and not columns and not store.exists(f"{run}/history.jsonl"):
        raise RunDamaged(
            f"{run} holds neither history.jsonl nor tables/history.parquet: name a run's folder"
        )
    return max(size, columns)


def read_info(store: Store, run: str) -> dict[str, Any]:
    """run.json; empty where there is none."""
    text = store.read(f"{run}/run.json")
    if text is None:
        return {}
    try:
        info = json.loads(text)
    except ValueError as error:
        raise RunDamaged(f"{run}/run.json is not JSON: {error}") from None
    if not isinstance(info, dict):
        raise RunDamaged(f"{run}/run.json does not hold a JSON object")
    return info


def read_faults(store: Store, run: str) -> list[dict[str, Any]]:
    """The lines of faults.jsonl without a torn last one."""
    text = store.read(f"{run}/faults.jsonl") or ""
    try:
        return [json.loads(line) for line in text.split("\n")[:-1] if line.strip()]
    except ValueError as error:
        raise RunDamaged(f"{run}/faults.jsonl: a line is not JSON: {error}") from None


def table_steps(run: Run, info: dict[str, Any]) -> list[Step]:
    """The steps that make the views `history`, `faults`, ..., `topics` and `consumed`."""

    def registered(name: str) -> Callable[[], None]:
        file, columns = catalog.TABLES[name]

        def work() -> None:
            run.rows[name] = _register_table(run, name, run.file(file), columns)

        return work

    steps = [Step(name, registered(name)) for name in catalog.TABLES]
    consumed = Step("consumed", lambda: _register_consumed(run))
    return [steps[0], Step("topics", lambda: _register_topics(run, info)), consumed, *steps[1:]]


def _register_topics(run: Run, info: dict[str, Any]) -> None:
    flags = ("expect_loss", "unclean")
    rows = [
        (str(topic["name"]), *(bool(topic.get(name)) for name in flags))
        for topic in info.get("topics") or ()
    ]
    few_rows(run.spark, "topics", catalog.TOPICS, rows)


def _register_consumed(run: Run) -> None:
    if not run.store.bytes_in(run.file("consumed")):
        _empty(run.spark, "consumed", catalog.CONSUMED)
        return
    run.spark.sparkContext.setJobDescription("table consumed")
    found = _columns(run, run.file("consumed"), catalog.CONSUMED)
    assert found is not None
    (keep if run.shape.small else _read_again)(run, "consumed", found)


def view_steps(run: Run, folder: Folder | None = None) -> list[Step]:
    """The steps that compute and keep the views of the checks; `folder` holds other SQL files."""

    def kept(name: str, query: str) -> Callable[[], None]:
        def work() -> None:
            run.spark.sparkContext.setJobDescription(f"view {name}")
            keep(run, name, run.spark.sql(query))

        return work

    return [Step(name, kept(name, query), query) for name, query in catalog.views(folder)]


def few_rows(
    spark: SparkSession, name: str, columns: dict[str, str], rows: Sequence[tuple[object, ...]]
) -> None:
    """Makes a view of a few rows, without createDataFrame, which would start a Python worker."""
    if not rows:
        _empty(spark, name, columns)
        return
    typed = ", ".join(f"CAST(`{c}` AS {kind}) AS `{c}`" for c, kind in columns.items())
    places = ", ".join([f"({', '.join('?' * len(columns))})"] * len(rows))
    query = f"SELECT {typed} FROM VALUES {places} AS t({', '.join(columns)})"
    spark.sql(query, args=[value for row in rows for value in row]).createOrReplaceTempView(name)


def _register_table(run: Run, name: str, file: str, columns: dict[str, str]) -> int:
    parquet = run.file(f"tables/{name}.parquet")
    made, written = run.store.modified_ms(parquet), run.store.modified_ms(file)
    run.spark.sparkContext.setJobDescription(f"table {name}")
    if made is not None and (written is None or made >= written):
        found = _columns(run, parquet, columns, file if written is not None else None)
        if found is not None:
            return keep(run, name, found) if run.shape.small else _read_again(run, name, found)
    if written is None or not run.store.bytes_in(file):
        return _empty(run.spark, name, columns)
    return _keep_lines(run, name, file, columns)


def _columns(
    run: Run, path: str, columns: dict[str, str], instead: str | None = None
) -> DataFrame | None:
    """The Parquet at `path`, with the catalog's columns; None if `instead` must be read."""
    from pyspark.errors import AnalysisException

    try:
        found = run.spark.read.parquet(path)
    except AnalysisException as error:
        raise RunDamaged(f"{path} is no Parquet: {str(error).splitlines()[0][:200]}") from None
    missing = [name for name in columns if name not in found.columns]
    if not missing:
        return found.selectExpr(*(f"CAST(`{c}` AS {kind}) AS `{c}`" for c, kind in columns.items()))
    told = f"{path} is of another schema, without {', '.join(missing)}"
    if instead is None:
        raise RunDamaged(
            f"{told}: another version of Highwater wrote it; check the run with that one, "
            "or put the run's JSON lines beside it"
        )
    run.notes.append(f"{told}: {instead} was read instead")
    return None


def _keep_lines(run: Run, name: str, file: str, columns: dict[str, str]) -> int:
    """Reads and keeps JSON lines; leaves out a torn last line, and raises for any other damage."""
    from pyspark.sql import functions as F

    schema = f"{catalog.ddl(columns)}, `{DAMAGED}` STRING"
    reader = run.spark.read.schema(schema).option("columnNameOfCorruptRecord", DAMAGED)
    found = _laid_out(run, name, reader.json(file)).persist()
    row = found.agg(F.count("*"), F.count(DAMAGED), F.max(DAMAGED)).collect()[0]
    lines, damaged, example = int(row[0]), int(row[1]), row[2]
    torn = run.store.torn_end(file)
    if damaged > 1 or (damaged and example.strip() != torn.strip()):
        told = "1 line is" if damaged == 1 else f"{damaged:,} lines are"
        raise RunDamaged(f"{file}: {told} not as it should be: {example[:200]}")
    whole = alone(run.spark, found).where(f"{DAMAGED} IS NULL").drop(DAMAGED)
    if torn and not damaged:  # valid JSON without a newline: `highwater verify` drops it, too
        whole = whole.where(F.col("index") != json.loads(torn)["index"])
    whole.createOrReplaceTempView(name)
    return lines - (1 if torn else 0)


def keep(run: Run, name: str, found: DataFrame | None) -> int:
    """Computes a view once and keeps it; returns its rows.  An empty view is replaced by one that
    Spark knows to be empty, which shortens the plans that use it."""
    assert found is not None
    kept = _laid_out(run, name, found).persist()
    rows = int(kept.count())
    if rows:
        alone(run.spark, kept).createOrReplaceTempView(name)
    else:
        kept.unpersist()
        _empty(run.spark, name, dict(kept.dtypes))
    return rows


def _read_again(run: Run, name: str, columns: DataFrame) -> int:
    """Makes a view on large Parquet, which is not kept: it costs less if each query reads only what
    it needs."""
    rows = int(columns.count())
    if rows:
        columns.createOrReplaceTempView(name)
    else:
        _empty(run.spark, name, dict(columns.dtypes))
    return rows


def alone(spark: SparkSession, kept: DataFrame) -> DataFrame:
    """The kept rows without the query that made them.

    Views are built upon views.  So each query would be analysed, and reported to Spark's listeners,
    with the queries of all views below it, only for Spark to replace those by what is kept.  Rows
    that get lost are still computed again, by the RDDs.  PySpark has no API for this; with a Spark
    that lacks the class, too, the rows stay with their query.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    # it needs columns of its own, because the query's columns may appear in other views as well
    try:
        plan = kept._jdf.queryExecution().withCachedData().newInstance()
        rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan)
    except (Py4JError, TypeError):  # py4j takes an unknown class for a package
        return kept
    return DataFrame(rows, spark)


def _laid_out(run: Run, name: str, found: DataFrame) -> DataFrame:
    order = SORTED.get(name, ())
    if run.shape.small:
        found = found.coalesce(1)
    elif order:
        found = found.repartition(run.shape.partitions, *order)
    elif name not in AS_MADE and {"topic", "partition"} <= set(found.columns):
        found = found.repartition(run.shape.partitions, "topic", "partition")
    return found.sortWithinPartitions(*order) if order else found


def _empty(spark: SparkSession, name: str, columns: dict[str, str]) -> int:
    fields = ", ".join(f"CAST(NULL AS {kind}) AS `{column}`" for column, kind in columns.items())
    spark.sql(f"SELECT {fields} WHERE false").createOrReplaceTempView(name)
    return 0
