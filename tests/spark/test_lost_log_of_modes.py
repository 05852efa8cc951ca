"""A new change log for tables that keep what the source has deleted: they go on keeping it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Table
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NAMES = (QualifiedName("public", "versions"), QualifiedName("public", "flagged"))


def test_a_new_change_log_leaves_what_they_kept(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    for name in NAMES:
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, n int)", f"INSERT INTO {name} VALUES (1, 0), (2, 0)"
        )
    made = pipeline_of(database, tmp_path / "lake")
    tables = (Table(NAMES[0], mode="history"), Table(NAMES[1], mode="soft_delete"))
    pipeline = replace(made, tables=tables)
    assert sync(pipeline, lambda: spark).errors == ()
    for name in NAMES:
        database.execute(f"UPDATE {name} SET n = 1 WHERE id = 1", f"DELETE FROM {name} WHERE id = 2")
    assert sync(pipeline, lambda: spark).errors == ()
    shutil.rmtree(Path(pipeline.lake.path) / "change_log")
    for name in NAMES:
        database.execute(f"UPDATE {name} SET n = 2 WHERE id = 1")
    adopted = replace(pipeline, source=replace(pipeline.source, adopt_slot=True))
    assert len(sync(adopted, lambda: spark).snapshots) == len(NAMES)
    for name in NAMES:
        database.execute(f"UPDATE {name} SET n = 3 WHERE id = 1")
    assert sync(adopted, lambda: spark).errors == ()
    assert [table.verdict for table in verify(adopted, lambda: spark).tables] == ["equal", "equal"]
    kept = [spark.read.format("delta").load(pipeline.lake.table(name)) for name in NAMES]
    assert sorted((row.id, row.n) for row in kept[0].collect()) == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    assert sorted((row.id, row._deleted_at is None) for row in kept[1].collect()) == [(1, True), (2, False)]
