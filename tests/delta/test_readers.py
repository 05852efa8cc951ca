"""Who opens a table that was never written by Spark: what docs/downstream.md says of readers."""

from __future__ import annotations

from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError, DeltaProtocolError

from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def table(database: Database, tmp_path: Path) -> str:
    """Version 0 has one row, version 1 two."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, n int)", "INSERT INTO orders VALUES (1, 7)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders")
    assert sync(pipeline, no_spark).errors == ()
    database.execute("INSERT INTO orders VALUES (2, 7)")
    assert sync(pipeline, no_spark).errors == ()
    return pipeline.lake.table(QualifiedName("public", "orders"))


@pytest.fixture
def mapped(database: Database, tmp_path: Path) -> str:
    """A table whose columns have other names in the data files."""
    database.execute('CREATE TABLE odd (id int PRIMARY KEY, "odd name" int)', "INSERT INTO odd VALUES (1, 7), (2, 7)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.odd")
    assert sync(pipeline, no_spark).errors == ()
    return pipeline.lake.table(QualifiedName("public", "odd"))


def queried(table: str, version: int) -> pa.Table:
    query = QueryBuilder().register("orders", DeltaTable(table, version=version))
    return pa.table(query.execute("SELECT * FROM orders ORDER BY id").read_all())


def test_duckdb_and_the_query_builder_read_each_version(table: str) -> None:
    (extension,) = Path(next(iter(duckdb_extension_delta.__path__))).glob(f"extensions/v{duckdb.__version__}/*")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        for version, ids in ((0, [1]), (1, [1, 2])):
            read = connection.execute("SELECT id FROM delta_scan(?, version => ?) ORDER BY id", [table, version])
            assert [row for (row,) in read.fetchall()] == ids
            assert queried(table, version)["id"].to_pylist() == ids


def test_those_that_do_not_know_column_mapping_refuse(mapped: str) -> None:
    opened = DeltaTable(mapped)
    for read in (opened.to_pandas, opened.to_pyarrow_table, opened.to_pyarrow_dataset):
        with pytest.raises(DeltaProtocolError, match="columnMapping"):
            read()


def test_what_was_found_is_written_without_the_metadata_of_its_fields(mapped: str, tmp_path: Path) -> None:
    found = queried(mapped, 0)
    with pytest.raises(DeltaError, match="Column mapping"):
        write_deltalake(tmp_path / "refused", found)
    plain = pa.table(found.columns, ["id", "name"])
    write_deltalake(tmp_path / "gold", plain)
    assert DeltaTable(tmp_path / "gold").to_pyarrow_table().num_rows == 2


def test_a_plain_table_needs_no_feature(table: str, tmp_path: Path) -> None:
    opened = DeltaTable(table)
    assert sorted(opened.to_pandas()["id"]) == sorted(opened.to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    write_deltalake(tmp_path / "gold", queried(table, 1))
    assert DeltaTable(tmp_path / "gold").to_pyarrow_table().num_rows == 2
