"""A key of 0 and one of -0 are one key to PostgreSQL, and two values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import MergeEngine, Table
from spark_jobs.options.table_mode import Mode
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import lake_rows
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal, in_public, synced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

MODES: tuple[Mode, ...] = ("mirror", "soft_delete", "history")
# what each mode holds in the end
ZEROS = {"mirror": ["-0.0"], "soft_delete": ["-0.0"], "history": ["-0.0", "-0.0", "-0.0", "0.0", "0.0"]}
STEPS = (
    ("UPDATE {t} SET k = '-0' WHERE k = 0",),
    ("UPDATE {t} SET a = 5 WHERE k = 0",),
    ("DELETE FROM {t} WHERE k = 0", "INSERT INTO {t} VALUES (0, 9)"),
    ("UPDATE {t} SET k = -k",),
)


# by day the suite of the writers shows Spark's keyless tables
@pytest.mark.parametrize(
    ("engine", "modes", "keyless"), [("auto", MODES, True), ("spark", MODES[:1], False), at_night("spark", MODES, True)]
)
def test_the_sign_of_a_zero_is_followed(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, modes: tuple[Mode, ...], keyless: bool
) -> None:
    names = in_public([*modes, *(["keyless"] if keyless else [])])
    for name in names:
        key = "" if name.relname == "keyless" else " PRIMARY KEY"
        database.execute(
            f"CREATE TABLE {name} (k float8{key}, a int)",
            f"INSERT INTO {name} SELECT g, g FROM generate_series(0, 5) g",
        )
    if keyless:
        database.execute("ALTER TABLE keyless REPLICA IDENTITY FULL", "INSERT INTO keyless SELECT -k, a FROM keyless")
    tables = (*(Table(name, mode) for name, mode in zip(names, modes, strict=False)), *map(Table, names[len(modes) :]))
    pipeline = replace(pipeline_of(database, tmp_path / "lake", engine=engine), tables=tables)
    synced(spark, pipeline)
    for step in STEPS:
        database.execute(*(statement.format(t=name) for name in names for statement in step))
        synced(spark, pipeline)
        assert_equal(spark, pipeline, names[0], *names[len(modes) :])
        for quick in (False, True):
            assert verify(pipeline, lambda: spark, how=Thoroughness(quick=quick)).problems == ()
    zeros = {
        name.relname: [str(row["k"]) for row in lake_rows(spark, pipeline.lake.table(name)).to_pylist() if not row["k"]]
        for name in names
    }
    assert {mode: sorted(zeros[mode]) for mode in modes} == {mode: ZEROS[mode] for mode in modes}
