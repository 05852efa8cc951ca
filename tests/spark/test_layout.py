"""``layout:`` of a table is what the table has, whatever is done to it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.options.column_options import ColumnOptions
from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import SyncReport, sync
from spark_jobs.writers.with_spark.arranged_table import Arrangement
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

CLUSTERED = TableLayout(cluster_by=("region", "id"))
FEED = TableLayout(properties=(("delta.enableChangeDataFeed", "true"), ("delta.checkpointInterval", "7")))
LAYOUTS = {
    "clustered": CLUSTERED,
    "partitioned": TableLayout(partition_by=("region",)),
    "theirs": NO_LAYOUT,
    "fed": FEED,
}
NAMES = {name: QualifiedName("public", name) for name in LAYOUTS}
KEPT = ("clustered", "partitioned", "fed")
BY_DAY = ("clustered", "theirs", "fed")
REWRITES = WriteLimits(rewritten_rows=0, rewritten_share=0.0, streamed_share=0.0)


def _has(spark: SparkSession, pipeline: Pipeline, name: str, layout: TableLayout) -> bool:
    found = Arrangement.of(spark, pipeline.lake.table(NAMES[name]))
    arranged = (found.clustered_by, found.partitioned_by) == (layout.cluster_by, layout.partition_by)
    return arranged and set(layout.properties) <= set(found.properties.items())


@pytest.mark.parametrize("chosen", [BY_DAY, at_night(tuple(LAYOUTS))], ids=["by day", "all"])
def test_it_stays_through_every_kind_of_write(
    spark: SparkSession,
    database: Database,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    chosen: tuple[str, ...],
) -> None:
    names, kept = [NAMES[name] for name in chosen], [name for name in KEPT if name in chosen]
    for name in chosen:
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, region text, v text)",
            f"INSERT INTO {name} SELECT g, 'r' || g % 3, 'v' FROM generate_series(1, 30) g",
        )
    made = pipeline_of(database, tmp_path / "lake", *map(str, names))
    tables = tuple(
        Table(NAMES[name], options=ColumnOptions(layout=layout)) for name, layout in LAYOUTS.items() if name in chosen
    )
    pipeline = replace(made, tables=tables)

    def synced(pipeline: Pipeline, *statements: str) -> SyncReport:
        database.execute(*(statement.format(t=name) for name in chosen for statement in statements))
        report = sync(pipeline, lambda: spark)
        assert report.errors == ()
        assert_equal(spark, pipeline, *names)
        assert [name for name in kept if not _has(spark, pipeline, name, LAYOUTS[name])] == []
        return report

    synced(pipeline)
    theirs = pipeline.lake.table(NAMES["theirs"])
    spark.sql(f"ALTER TABLE delta.`{theirs}` CLUSTER BY (region)")
    report = synced(pipeline, "UPDATE {t} SET region = 'r9' WHERE id < 9", "DELETE FROM {t} WHERE id = 9")
    assert {table.engine for table in report.tables} == {"spark"}
    report = synced(replace(pipeline, writes=REWRITES), "UPDATE {t} SET v = 'x'")
    strategies = {table.name.relname: table.strategy for table in report.tables}
    assert strategies == dict.fromkeys(chosen, "rewrite") | {"fed": "merge"}
    database.execute("ALTER TABLE fed RENAME v TO words")  # from now on Delta refuses other columns with the feed on
    synced(pipeline)
    synced(pipeline, "ALTER TABLE {t} ADD w int DEFAULT 5")  # which rewrites the table's rows
    spark.sql(f"ALTER TABLE delta.`{theirs}` ADD COLUMN mine int")
    with caplog.at_level(logging.WARNING):  # another type: a new snapshot
        synced(pipeline, "ALTER TABLE {t} ALTER w TYPE text")
    assert "columns that somebody else has added are removed: mine" in caplog.text
    assert "its change data feed has a gap here" in caplog.text
    assert _has(spark, pipeline, "theirs", TableLayout(cluster_by=("region",))), "somebody else's choice stays"
    # to build one again takes Spark as long as five writes
    rebuilt = tables if len(tables) == len(LAYOUTS) else tables[:1]
    marked = tuple(replace(table, mode="soft_delete") if table in rebuilt else table for table in tables)
    assert sync(replace(pipeline, tables=marked), lambda: spark).errors == ()
    assert [name for name in kept if not _has(spark, pipeline, name, LAYOUTS[name])] == []


def test_a_table_that_exists_gets_it_when_spark_writes_to_it(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE clustered (id int PRIMARY KEY, region text)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.clustered")
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute("INSERT INTO clustered VALUES (1, 'r')")
    later = Table(NAMES["clustered"], options=ColumnOptions(layout=CLUSTERED))
    assert sync(replace(pipeline, tables=(later,), merge_engine="spark"), lambda: spark).errors == ()
    assert _has(spark, pipeline, "clustered", CLUSTERED)


def test_a_column_that_is_not_there_stops_its_table_alone(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    for name in ("clustered", "theirs"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, region text)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.clustered", "public.theirs")
    wrong = ColumnOptions(layout=TableLayout(cluster_by=("regoin",)))
    tables = (Table(NAMES["clustered"], options=wrong), Table(NAMES["theirs"]))
    report = sync(replace(pipeline, tables=tables), lambda: spark)
    (error,) = report.errors
    assert str(error).startswith("table public.clustered has no column regoin that is followed, and layout: names it")
    assert error.hint == "expected some of id, region"
    assert [table.name.relname for table in report.snapshots if table.error is None] == ["theirs"]


def test_an_empty_text_does_not_fit_a_partition(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE partitioned (id int PRIMARY KEY, region text)",
        "INSERT INTO partitioned VALUES (1, 'r'), (2, NULL)",
    )
    name = NAMES["partitioned"]
    options = ColumnOptions(layout=LAYOUTS["partitioned"])
    made = pipeline_of(database, tmp_path / "lake", str(name))
    pipeline = replace(made, tables=(Table(name, options=options),))
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(
        "INSERT INTO partitioned VALUES (3, ''), (4, 's')", "UPDATE partitioned SET region = '' WHERE id = 1"
    )
    (error,) = sync(pipeline, lambda: spark).errors
    assert "column region: Delta has no empty text as the value of a partition, in 2 of" in str(error)
    nulled = replace(pipeline, on_unrepresentable="null")
    report = sync(nulled, lambda: spark)
    assert (report.errors, report.snapshots) == ((), ())
    assert_equal(spark, nulled, name)
    texts = spark.read.format("delta").load(f"{nulled.lake.root}/_unrepresentable").select("column", "source_text")
    assert sorted(map(tuple, texts.collect())) == [("region", ""), ("region", "")]
    assert sync(nulled, lambda: spark).snapshots == (), "the type is the same as without the layout"
