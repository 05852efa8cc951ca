"""What executors decode, and Spark writes, has the same records in ``_unrepresentable`` as what this process does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.configuration import Table
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.apply.replaced_values import (
    NAMES,
    OF_FIRST,
    change_all,
    counts,
    in_every_mode,
    of_changes,
    of_first,
    records,
    rows,
)
from tests.fixtures.no_spark import synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.nightly]


@pytest.mark.usefixtures("read_by_executors")
def test_rows_of_executors_have_their_records(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    pipeline = in_every_mode(database, tmp_path / "lake", "clamp", engine="spark")
    database.execute(
        "CREATE TABLE free (n int, day date)",
        "ALTER TABLE free REPLICA IDENTITY FULL",
        "INSERT INTO free VALUES (1)",
        "CREATE TABLE empty (id int PRIMARY KEY, day date)",
    )
    others = tuple(Table(QualifiedName("public", name)) for name in ("free", "empty"))
    writes = replace(pipeline.writes, on_driver_bytes=0)
    pipeline = replace(pipeline, tables=(*(pipeline.tables or ()), *others), writes=writes)
    assert sync(pipeline, lambda: spark).errors == ()
    for name in NAMES.values():
        assert sorted(records(pipeline, name), key=str) == sorted(of_first("clamp"), key=str)
        assert counts(pipeline, name) == dict.fromkeys(OF_FIRST, 1)
    assert 0 not in {row["lsn"] for row in rows(pipeline)}
    change_all(database)
    database.execute("INSERT INTO free VALUES (2, 'infinity'), (2, 'infinity'), (3, 'infinity')")
    database.execute("DELETE FROM free WHERE n = 3")
    assert sync(pipeline, lambda: spark).errors == ()
    for mode, name in NAMES.items():
        found = records(pipeline, name, since=3)
        assert sorted(found, key=str) == of_changes(mode, "clamp"), mode
        assert sum(counts(pipeline, name).values()) == len(OF_FIRST) + len(found)
    assert records(pipeline, "public.free") == [(None, "day", "infinity", "9999-12-31")]
    assert 0 not in {row["lsn"] for row in rows(pipeline)}


def test_partitions_that_are_read_again_have_their_records(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE parted (id int PRIMARY KEY, day date) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high (id int PRIMARY KEY, day date)",
    )
    pipeline = replace(pipeline_of(database, tmp_path / "lake", "public.parted"), on_unrepresentable="null")
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(
        "INSERT INTO high VALUES (150, 'infinity')",
        "ALTER TABLE parted ATTACH PARTITION high FOR VALUES FROM (100) TO (200)",
        "INSERT INTO parted VALUES (1, '-infinity')",
    )
    report = sync(pipeline, lambda: spark)
    assert report.errors == ()
    assert any(table.partitions for table in report.tables)
    assert sorted(records(pipeline, "public.parted"), key=str) == [
        ('{"id": "1"}', "day", "-infinity", None),
        ('{"id": "150"}', "day", "infinity", None),
    ]
    assert counts(pipeline, "public.parted") == {"day": 2}


def test_versions_that_only_another_mode_shows_have_their_records(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, day date)", "INSERT INTO t VALUES (1, 'infinity')")
    mirror = replace(pipeline_of(database, tmp_path / "lake", "public.t"), on_unrepresentable="null")
    synced_without_spark(mirror)
    database.execute("INSERT INTO t VALUES (2, 'infinity')", "UPDATE t SET day = '2024-01-01' WHERE id = 2")
    synced_without_spark(mirror)
    assert counts(mirror, "public.t") == {"day": 1}
    history = replace(mirror, tables=(Table(QualifiedName("public", "t"), "history"),))
    assert sync(history, lambda: spark).errors == ()
    assert sorted(records(history, "public.t")) == [
        (f'{{"id": "{number}"}}', "day", "infinity", None) for number in (1, 2)
    ]
    assert counts(history, "public.t") == {"day": 2}
