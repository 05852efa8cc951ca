"""The end of a person's data in the modes that keep what the source has deleted: what docs/security.md says to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from spark_jobs.configuration import Retention, Table
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

PERSON = QualifiedName("public", "person")


@pytest.mark.parametrize("mode", ["history", *map(at_night, ("soft_delete", "append"))])
def test_rows_that_the_source_no_longer_has_may_be_deleted_in_the_lake(
    spark: SparkSession, database: Database, tmp_path: Path, mode: Mode
) -> None:
    database.execute(
        "CREATE TABLE person (id int PRIMARY KEY, email text)",
        "ALTER TABLE person REPLICA IDENTITY FULL",
        "INSERT INTO person VALUES (1, 'stays'), (2, 'canary')",
    )
    made = pipeline_of(database, tmp_path / "lake", "public.person")
    pipeline = replace(made, tables=(Table(PERSON, mode=mode),), retention=Retention(cuts=timedelta(0)))
    path = Path(pipeline.lake.table(PERSON))
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute("DELETE FROM person WHERE id = 2", "UPDATE person SET email = 'changed' WHERE id = 1")
    assert sync(pipeline, lambda: spark).errors == ()
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 2")
    database.execute("INSERT INTO person VALUES (3, 'new')", "UPDATE person SET email = 'again' WHERE id = 1")
    assert sync(pipeline, lambda: spark).errors == ()
    assert holds_canary(path), "older versions can still be read"
    assert maintain(pipeline, lambda: spark).errors == ()
    assert maintain(pipeline, lambda: spark).errors == ()
    assert not holds_canary(path)
    emails = {row.email for row in spark.read.format("delta").load(str(path)).collect()}
    assert emails >= {"again", "new"}
    assert "canary" not in emails
    if mode != "append":
        assert [table.verdict for table in verify(pipeline, lambda: spark).tables] == ["equal"]


def holds_canary(path: Path) -> bool:
    """Whether a data file holds it, whatever deletion vectors say."""
    files = (file for file in path.glob("**/*.parquet") if "_delta_log" not in file.parts)
    return any("canary" in str(pq.read_table(file).to_pylist()) for file in files)
