"""What the source says about a table is what Spark's DESCRIBE says, whatever is done to the table by Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.delta.table import delta_identifier
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.column_options import ColumnOptions
from spark_jobs.options.table_layout import TableLayout
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_spark.simpler_table import simplify
from tests.apply.annotations import HOSTILE, ITEM, MAKING, in_source, said
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.altered_tables import synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

PARTED = QualifiedName("public", "parted")
OWN = {"_valid_from_lsn", "_valid_from", "_valid_to_lsn", "_valid_to"}


def described(spark: SparkSession, pipeline: Pipeline, name: QualifiedName) -> dict[str, str | None]:
    """The comments by Spark, empty ones as none."""
    table = delta_identifier(pipeline.lake.table(name))
    columns = {row["col_name"]: row["comment"] or None for row in spark.sql(f"DESCRIBE TABLE {table}").collect()}
    columns = {name: comment for name, comment in columns.items() if name and not name.startswith("#")}
    detail = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]
    return {"": detail["description"] or None, **columns}


def assert_said(spark: SparkSession, database: Database, pipeline: Pipeline, by_hand: str | None = None) -> None:
    """``by_hand``: what somebody else has written on a column on which the source has no comment."""
    expected = in_source(database)
    expected["mood"] = (by_hand, *expected["mood"][1:])
    for name, source in ((ITEM, expected), (PARTED, in_source(database, PARTED))):
        comments = {column: text if column == "" else text[0] or None for column, text in source.items()}
        now = described(spark, pipeline, name)
        assert {column: text for column, text in now.items() if column not in OWN} == comments, name
    in_lake = {column: text for column, text in said(pipeline).items() if column not in OWN}
    assert in_lake == expected


@pytest.mark.parametrize("all_kinds", [False, at_night(True)], ids=["changes", "all"])
def test_they_are_kept_whatever_spark_does(
    spark: SparkSession, database: Database, tmp_path: Path, all_kinds: bool
) -> None:
    """One table is partitioned in the lake, so that only Spark can write it."""
    database.execute(
        *MAKING,
        "CREATE TABLE parted (id int PRIMARY KEY, region text, old text)",
        "INSERT INTO parted SELECT g, 'r' || g % 3, 'x' FROM generate_series(1, 9) g",
        "COMMENT ON TABLE parted IS 'by region'",
        f"COMMENT ON COLUMN parted.region IS $said${HOSTILE}$said$",
        "COMMENT ON COLUMN parted.old IS 'old'",
    )
    by_region = Table(PARTED, options=ColumnOptions(layout=TableLayout(partition_by=("region",))))
    pipeline = pipeline_of(database, tmp_path / "lake", engine="spark")
    pipeline = replace(pipeline, tables=(Table(ITEM), by_region))
    synced(spark, pipeline)
    assert_said(spark, database, pipeline)
    spark.sql(f"ALTER TABLE {delta_identifier(pipeline.lake.table(ITEM))} ALTER COLUMN mood COMMENT 'by hand'")
    steps: tuple[tuple[str, ...], ...] = (
        ("UPDATE item SET note = 'y' WHERE id = 3", "UPDATE parted SET old = 'y' WHERE id = 3"),
        (
            "ALTER TABLE item RENAME price TO cost",
            "ALTER TABLE item ADD filled int DEFAULT 7, ADD empty uuid",
            f"COMMENT ON COLUMN item.filled IS $said${HOSTILE}$said$",
            "COMMENT ON COLUMN item.empty IS 'nothing'",
            "UPDATE item SET note = 'z' WHERE id = 4",
            "ALTER TABLE parted RENAME old TO renamed",
            "ALTER TABLE parted ADD filled int DEFAULT 7",
            "COMMENT ON COLUMN parted.filled IS 'seven'",
        ),
        (
            "COMMENT ON TABLE item IS NULL",
            "COMMENT ON COLUMN item.at IS NULL",
            f"COMMENT ON TABLE parted IS $said${HOSTILE}$said$",
            "COMMENT ON COLUMN parted.region IS NULL",
        ),
    )
    for statements in steps if all_kinds else [sum(steps, ())]:
        database.execute(*statements)
        synced(spark, pipeline)
        assert_said(spark, database, pipeline, "by hand")
    assert verify(pipeline, lambda: spark).problems == ()
    if not all_kinds:
        return
    run = Run(pipeline, lambda: spark)
    landed = LandedWindows.of(pipeline)
    assert rebuild(run, landed.markers[2].window.lo, landed.end).errors == ()
    assert_said(spark, database, pipeline, "by hand")
    pipeline = replace(pipeline, tables=(Table(ITEM, "history"), replace(by_region, mode="history")))
    database.execute("UPDATE item SET note = 'in history' WHERE id = 5")
    assert [changed.error for changed in synced(spark, pipeline).modes] == [None, None]
    assert_said(spark, database, pipeline, "by hand")
    assert maintain(pipeline, lambda: spark).errors == ()
    simplify(pipeline, ITEM, spark)
    assert_said(spark, database, pipeline, "by hand")
    database.execute("COMMENT ON TABLE item IS 'anew'", "COMMENT ON TABLE parted IS NULL")
    snapshot(Run(pipeline, lambda: spark), [ITEM, PARTED])
    assert_said(spark, database, pipeline, "by hand")
    assert verify(pipeline, lambda: spark).problems == ()
