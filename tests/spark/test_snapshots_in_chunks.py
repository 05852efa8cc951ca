"""Snapshots in chunks that Spark writes: of every mode, and of types that only Spark writes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from spark_jobs.configuration import Adopted, SnapshotOptions, Table
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.chunks.read_record import ReadRecord
from spark_jobs.snapshot.exporter import IN_TURNS
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import lake_rows
from tests.fixtures.servers import Database
from tests.snapshot.large_table import BIG, LargeTable, changes, created
from tests.spark.altered_tables import assert_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

TYPES = QualifiedName("public", "types")


@pytest.mark.parametrize("mode", [at_night("mirror"), "history", at_night("soft_delete"), at_night("append")])
def test_every_mode(spark: SparkSession, database: Database, tmp_path: Path, mode: Mode) -> None:
    """The first snapshot, and a new one of a table that keeps its past, while it is altered."""
    table = Table(BIG, mode=mode)
    large = LargeTable.at(
        created(database), tmp_path / "lake", spark=lambda: spark, table=table, engine="spark"
    ).prepared()
    chance = random.Random(7)  # noqa: S311
    for altered in ("ADD e int DEFAULT 5, ADD f text", "DROP e"):
        large.read_on()
        database.execute(f"ALTER TABLE big {altered}")
        with database.connect() as connection:
            for _ in range(4):
                for statement in changes(chance):
                    connection.execute(statement)
        large.read_on(to_the_end=True)
        assert_shows_source(spark, large)


@pytest.mark.parametrize("mode", ["history", at_night("soft_delete"), at_night("append")])
def test_a_mode_that_is_changed_between_chunks(
    spark: SparkSession, database: Database, tmp_path: Path, mode: Mode
) -> None:
    """What was read for this process to write is written by Spark."""
    large = LargeTable.at(created(database), tmp_path / "lake", spark=lambda: spark).prepared()
    large.read_on()
    large.pipeline = replace(large.pipeline, tables=(Table(BIG, mode=mode),))
    database.execute("UPDATE big SET n = -n WHERE id % 7 = 0")
    large.read_on()
    assert len(large.chunks_read) == 2
    large.read_on(to_the_end=True)
    assert_shows_source(spark, large)


def assert_shows_source(spark: SparkSession, large: LargeTable) -> None:
    """With the rows of its newest snapshot, and no changes after it."""
    assert not large.folder.exists()
    if large.pipeline.table(BIG).mode == "append":
        held = lake_rows(spark, large.pipeline.lake.table(BIG)).sort_by("id")
        newest = held.filter(pc.equal(held.column("_commit_lsn"), pc.max(held.column("_commit_lsn"))))
        assert list(zip(*(newest.column(name).to_pylist() for name in large.columns), strict=True)) == large.rows()
    else:
        report = verify(large.pipeline, lambda: spark)
        assert [table.verdict for table in report.tables] == ["equal"]


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "history", "append"])
def test_every_mode_adopts_rows(spark: SparkSession, database: Database, tmp_path: Path, mode: Mode) -> None:
    table = Table(BIG, mode=mode, adopt=Adopted(str(tmp_path / "theirs"), (("filler", "text"),)))
    large = LargeTable.at(created(database), tmp_path / "lake", spark=lambda: spark, table=table, engine="spark")
    large.copy_to(tmp_path / "theirs")
    large.prepared().read_on()
    assert large.plan["adopted"]
    database.execute(*changes(random.Random(7)))  # noqa: S311
    large.read_on(to_the_end=True)
    assert_shows_source(spark, large)


def test_partitions_and_types_in_one_sync(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """A key of several columns and types, partitions, and types that this process does not write. Each of the sync's
    rounds reads a chunk."""
    database.execute(
        "CREATE TABLE types (at timestamptz, kind text, id numeric(12, 2), tags int[], doc jsonb, wide text,"
        " PRIMARY KEY (at, kind, id)) PARTITION BY RANGE (at)",
        "CREATE TABLE types_1 PARTITION OF types FOR VALUES FROM (MINVALUE) TO ('2024-02-01')",
        "CREATE TABLE types_2 PARTITION OF types FOR VALUES FROM ('2024-02-01') TO (MAXVALUE)",
        "ALTER TABLE types ALTER wide SET STORAGE EXTERNAL",
        "INSERT INTO types SELECT timestamptz '2024-01-01' + g * interval '30 minutes', 'k' || g % 3, g / 4.0,"
        " ARRAY[g, NULL], jsonb_build_object('g', g), repeat(md5(g::text), 80) FROM generate_series(1, 3000) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.types")
    pipeline = replace(pipeline, snapshot=SnapshotOptions(chunk_bytes=1 << 20, parallel=1))
    report = sync(pipeline, lambda: spark, patience=replace(IN_TURNS, reading=0))
    assert report.errors == ()
    (taken,) = report.snapshots
    assert taken.rows == 3000
    assert_equal(spark, pipeline, TYPES)


def test_rows_that_move_are_found_by_keys_of_several_types(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """Between two chunks, every row moves to a place that was read before, or is new; no value of ``wide`` is sent."""
    database.execute(
        "CREATE TABLE types (at timestamptz, day date, code char(6), id uuid, n int, wide text, filler text,"
        " PRIMARY KEY (at, day, code, id))",
        "ALTER TABLE types ALTER wide SET STORAGE EXTERNAL, ALTER filler SET STORAGE PLAIN",
        "INSERT INTO types SELECT timestamptz '1999-12-31 23:59:59.000001+03' + g * interval '1 day',"
        " date '0099-02-01' + g, 'c' || g, md5(g::text)::uuid, 0, repeat(md5(g::text), 80), repeat('f', 900)"
        " FROM generate_series(1, 1500) g",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.types")
    pipeline = replace(pipeline, snapshot=SnapshotOptions(chunk_bytes=1 << 20, parallel=1))
    large = LargeTable(database, pipeline, lambda: spark).prepared()
    large.read_on(name=TYPES)
    database.execute(
        "DELETE FROM types WHERE n = 0 AND code < 'c13'",
        "VACUUM (INDEX_CLEANUP ON) types",
        "UPDATE types SET n = 1, filler = repeat('g', 3000)",
    )
    large.read_on(to_the_end=True, name=TYPES)
    assert_equal(spark, pipeline, TYPES)


def test_executors_read_them(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Each chunk in a job of its own, whose rows stay when the driver ends; with DDL and values that do not fit. They
    are shown while others are read."""
    large = LargeTable.at(created(database), tmp_path / "lake", spark=lambda: spark, engine="spark")
    large.pipeline = replace(
        large.pipeline,
        spark=replace(large.pipeline.spark, handed_in=True),
        on_unrepresentable="null",
        snapshot=replace(large.pipeline.snapshot, partial=True),
    )
    database.execute("ALTER TABLE big ADD at date", "UPDATE big SET at = 'infinity' WHERE id % 1000 = 1")
    large.prepared()
    large.read_on()
    partial = str(large.folder / "partial")
    shown = lake_rows(spark, partial, by_spark=True)
    assert shown.column_names == large.columns
    rows = set(zip(*(column.to_pylist() for column in shown.columns), strict=True))
    # none of them has a date that fits
    assert rows < {(*row, None) for row in database.execute("SELECT id, n, filler, doc FROM big")}
    database.execute("ALTER TABLE big ADD e numeric(5, 2) DEFAULT 1.5", "UPDATE big SET n = -n WHERE id % 40 = 3")
    large.read_on()
    assert len(large.chunks_read) == 2
    files = [json.loads(file.read_text()) for file in large.folder.glob("chunk-*.json")]
    assert all("/part-" in file["path"] for chunk in files for file in chunk)
    database.execute("UPDATE big SET id = -id WHERE id % 50 = 4", "DELETE FROM big WHERE id % 30 = 5")
    taken = large.read_on(to_the_end=True)
    assert taken.state is not None
    assert taken.state.unrepresentable.counts == {"at": 4}
    assert not DeltaTable.is_deltatable(partial)
    database.execute("UPDATE big SET at = NULL WHERE at = 'infinity'")  # as the lake has it
    assert_equal(spark, large.pipeline, BIG)


def test_executors_read_a_table_that_is_altered_meanwhile(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is void. It is read from the start, in the same run."""
    large = LargeTable.at(created(database), tmp_path / "lake", spark=lambda: spark, engine="spark").prepared()
    large.pipeline = replace(large.pipeline, spark=replace(large.pipeline.spark, handed_in=True))
    add = ReadRecord.add

    def altered_once(*arguments: Any) -> None:
        patched.setattr(ReadRecord, "add", add)
        add(*arguments)
        database.execute("VACUUM FULL big")

    with monkeypatch.context() as patched:
        patched.setattr(ReadRecord, "add", altered_once)
        assert large.read_on(to_the_end=True).rows == 4000
    assert_equal(spark, large.pipeline, BIG)


def test_a_partial_table_beside_what_spark_does(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Spark reads it, and the vacuum of the table takes none of its files."""
    large = LargeTable.at(created(database), tmp_path / "lake", spark=lambda: spark).prepared()
    large.pipeline = replace(large.pipeline, snapshot=replace(large.pipeline.snapshot, partial=True))
    large.read_on(to_the_end=True)
    database.execute("UPDATE big SET n = -n")
    large.read_on()
    table = large.pipeline.lake.table(BIG)
    first = lake_rows(spark, f"{table}/partial", by_spark=True)
    assert 0 < first.num_rows < 4000
    assert set(first.column("n").to_pylist()) <= {-number for number in range(4001)}
    spark.sql(f"VACUUM delta.`{table}`")
    assert lake_rows(spark, f"{table}/partial", by_spark=True).num_rows == first.num_rows
    read = large.chunks_read
    large.read_on()
    assert read < large.chunks_read
    large.read_on(to_the_end=True)
    spark.sql(f"VACUUM delta.`{table}`")
    assert_equal(spark, large.pipeline, BIG)


def test_of_a_cluster_the_driver_reads_what_it_writes(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """A table of a few small chunks, whose files become the table's own."""
    large = LargeTable.at(created(database), tmp_path / "lake", spark=lambda: spark)
    database.execute("DELETE FROM big WHERE id > 900", "VACUUM FULL big")
    large.pipeline = replace(large.pipeline, spark=replace(large.pipeline.spark, handed_in=True))
    large.prepared().read_on()
    assert large.plan["revisions"][0]["writer"] == "deltalake"
    large.read_on(to_the_end=True)
    assert_equal(spark, large.pipeline, BIG)
