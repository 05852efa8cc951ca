"""Columns whose names Spark, Delta or our own statements use too: followed row by row, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from psycopg import sql

from spark_jobs.doctor.table_checks import publication_and_table_checks
from spark_jobs.errors import CdcError
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.postgres.connection import connected
from spark_jobs.postgres.privileges import role_privileges
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.reserved_columns import RESERVED, RESERVED_IN_KEY
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.spark.errors import spark_errors
from spark_jobs.spark.session import isolated_session
from spark_jobs.storage import Location
from spark_jobs.sync import sync
from spark_jobs.writers.merge_sql import NET_CHANGE, merge_statement, named_columns
from spark_jobs.writers.table_features import DELETION_VECTORS
from spark_jobs.writers.with_spark.delta_table import add_features, replace_table
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# what our statements call their own: columns, aliases, views
OURS = ("op", "s", "t", "v0", "v1", "v2", "u0", "u1", "f0", "f1", "fresh", "leans", "net_change", "moved_rows")
# Delta's and Spark's, of MERGE, deletion vectors, change feed, row tracking and hidden columns
DELTAS = (
    "_change_type",
    "_commit_version",
    "_row_id",
    "_row_id_",
    "_target_row_index_",
    "_source_row_index",
    "_condition_",
    "_file_name_",
    "_databricks_internal_edge_computed_column_skip_row",
    "deletedRowIndexSet",
    "file_path",
    "row_index",
    "count",
    "current_date",
)
# what has a meaning in SQL, in Parquet, or in a path of fields
SIGNS = (
    "s.v0",
    "a`b",
    "'",
    '"',
    "with space",
    "comma,semi;(){}=",
    "new\nline",
    "*",
    "Ärger",
    "日本",
    "%s",
    "${x}",
    "x" * 63,
)
NAMES = (*OURS, *DELTAS, *SIGNS)
KEY = ("s", "v0", "_row_id")
LONG = ("t", "u1", "op", "a`b")  # out of line, so that an UPDATE of others does not send them


def identifiers(*names: str) -> str:
    return ", ".join(map(identifier, names))


def identifier(name: str) -> str:
    return sql.Identifier(name).as_string()


def rows(first: int, last: int) -> str:
    """An INSERT of one row for each number; every value tells its column and its row."""
    tails = ["repeat(md5(g::text), 100)" if name in LONG else "''" for name in NAMES]
    values = [f"'{place}:' || g || {tail}" for place, tail in enumerate(tails)]
    return f"INSERT INTO odd SELECT g, {', '.join(values)} FROM generate_series({first}, {last}) g"


STEPS = {
    "mixed, values kept": (
        f"UPDATE odd SET {identifier('v1')} = 'new' WHERE id % 3 = 0",
        f"UPDATE odd SET ({identifiers('t', 's.v0', 'net_change')}) = ('a', 'b', 'c') WHERE id = 4",
        "DELETE FROM odd WHERE id = 5",
        rows(21, 23),
    ),
    "keys changed, values kept": (
        f"UPDATE odd SET {identifier('s')} = 'moved' WHERE id = 1",
        f"UPDATE odd SET ({identifiers('_row_id', '_change_type')}) = ('moved', 'x') WHERE id = 2",
    ),
    "inserts alone": (rows(31, 33),),
    "truncated": ("TRUNCATE odd", rows(41, 44), "UPDATE odd SET \"op\" = 'x' WHERE id = 42"),
}


@pytest.mark.parametrize(
    "on_driver_bytes", [WriteLimits.on_driver_bytes, at_night(0)], ids=["on the driver", "by executors"]
)
def test_every_name_that_is_not_refused_is_followed(
    spark: SparkSession, database: Database, tmp_path: Path, on_driver_bytes: int
) -> None:
    columns = ", ".join(f"{identifier(name)} text" for name in NAMES)
    database.execute(
        f"CREATE TABLE odd (id int, {columns}, PRIMARY KEY ({identifiers(*KEY)}))",
        *(f"ALTER TABLE odd ALTER {identifier(name)} SET STORAGE EXTERNAL" for name in LONG),
        rows(1, 10),
    )
    odd = replace(Followed.start(spark, database, tmp_path / "lake", "odd"), on_driver_bytes=on_driver_bytes)
    (taken,) = odd.snapshot()
    assert taken.error is None
    odd.assert_equal()
    for step, statements in STEPS.items():
        database.execute(*statements)
        (applied,) = odd.sync()
        assert applied.error is None, (step, applied.error)
        assert applied.outcome == "applied"
        odd.assert_equal()


REFUSED = {
    "merged": "_metadata",
    "shouted": "_METADATA",
    "dropped": "_row_dropped_",
    "twice": "Id",
}


def test_other_names_are_refused_before_the_snapshot_and_hold_nobody_back(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY, sku text)", "INSERT INTO item VALUES (1, 'x')")
    database.execute(f"CREATE PUBLICATION {database.name} FOR ALL TABLES")
    item = Followed(spark, database, pipeline_of(database, tmp_path / "lake"), (QualifiedName("public", "item"),))
    assert sync(item.pipeline, lambda: spark).errors == ()
    database.execute(
        *(f'CREATE TABLE {table} (id int PRIMARY KEY, "{name}" text)' for table, name in REFUSED.items()),
        "INSERT INTO item VALUES (2, 'y')",
        "UPDATE item SET sku = 'z' WHERE id = 1",
    )
    report = sync(item.pipeline, lambda: spark)
    uses, alike = "whose names Delta Lake uses itself", "whose names differ only in case, which is one name to Spark"
    assert {str(error).partition(" RENAME COLUMN ")[0] for error in report.errors} == {
        f"table public.{table} has columns {f'{alike}: id, Id' if name == 'Id' else f'{uses}: {name}'}:"
        f" ALTER TABLE public.{table}"
        for table, name in REFUSED.items()
    }
    assert report.snapshots == ()
    item.assert_equal()
    told = doctor_says(item)
    assert [what for what, found in told if "names" in found] == sorted(f"public.{table}" for table in REFUSED)

    database.execute(*(error.hint.partition(", or take")[0] for error in report.errors))
    assert sync(item.pipeline, lambda: spark).errors == ()
    replace(item, names=tuple(QualifiedName("public", table) for table in ("item", *REFUSED))).assert_equal()
    assert not [what for what, found in doctor_says(item) if "names" in found]


def doctor_says(followed: Followed) -> list[tuple[str, str]]:
    with connected(followed.pipeline.source.dsn) as connection:
        checks = publication_and_table_checks(connection, followed.pipeline, role_privileges(connection))
        return sorted((check.what, check.found) for check in checks)


# one that reading uses, one that MERGE adds, and one of its condition: with another Delta all are tried
RESERVED_BY_DAY = ("_metadata", "_row_dropped_", "_row_id_")


@pytest.mark.parametrize(
    "name",
    [name if name in RESERVED_BY_DAY else at_night(name) for name in sorted(RESERVED | RESERVED_IN_KEY)],
)
def test_a_reserved_name_is_reserved_still(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Where this Delta can merge a table with such a column, the name is to leave the list."""
    columns = (
        LakeColumn("id", 1, LakeType(LakeKind.INT), True),
        LakeColumn(name, 2, LakeType(LakeKind.STRING), name in RESERVED_IN_KEY),
        LakeColumn("other", 3, LakeType(LakeKind.STRING), False),
    )
    shape, path = TableShape(1, QualifiedName("public", "odd"), columns), Location.of(str(tmp_path / "odd"))
    net = pa.table(
        {
            "op": [1, 0, 1],
            "v0": pa.array([1, 2, 9], pa.int32()),
            "v1": ["a", "b", "c"],
            "v2": ["d", "e", "f"],
            "u1": [True, False, False],
        }
    )

    def merge_again_and_again() -> None:
        for kept in (), (1,), ():  # the second meets deletion vectors
            with isolated_session(spark, {}) as own:
                own.createDataFrame(net).createOrReplaceTempView(NET_CHANGE)
                own.sql(merge_statement(path, NetColumns(shape, kept), None))

    replace_table(spark.createDataFrame(net).coalesce(1).selectExpr(*named_columns(columns)), path)
    add_features(spark, path, [DELETION_VECTORS])
    with pytest.raises(CdcError), spark_errors("MERGE"):
        merge_again_and_again()
