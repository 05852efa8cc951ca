"""Partitioned tables whose root and leaves have different replica identities, published under the root's name.

The letter of an old tuple then follows the root's identity, its content the leaf's: with FULL at the root and DEFAULT
at the leaf, `O` holds null in every column outside the key; with DEFAULT at the root and FULL at the leaf, `K` holds
the whole row. Large values that an UPDATE leaves alone are in the new tuple of neither.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from spark_jobs.configuration import MergeEngine, PluginName
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.mode_columns import live_rows
from spark_jobs.sync import sync
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

KEYED = {"full_default": ("FULL", "DEFAULT", "DEFAULT"), "full_mixed": ("FULL", "FULL", "DEFAULT")}
KEYED |= {"default_full": ("DEFAULT", "FULL", "FULL"), "default_mixed": ("DEFAULT", "DEFAULT", "FULL")}
KEYLESS = {"keyless_default": ("DEFAULT", "FULL", "FULL"), "keyless_nothing": ("NOTHING", "FULL", "FULL")}

CHANGES = (
    "UPDATE {t} SET v = 'u' WHERE id = 1",
    "UPDATE {t} SET id = 102 WHERE id = 2",  # a leaf's key changes, its large value does not
    "UPDATE {t} SET id = 103, v = NULL WHERE id = 3",
    "DELETE FROM {t} WHERE id = 4",
    "UPDATE {t} SET id = 105 WHERE id = 5",
    "UPDATE {t} SET v = 'after the move' WHERE id = 105",
    "UPDATE {t} SET id = 1006 WHERE id = 6",  # into the other leaf: a delete and an insert
    "UPDATE {t} SET id = 8, v = 'back' WHERE id = 1008",
    "UPDATE {t} SET id = 1107 WHERE id = 1007",
    "DELETE FROM {t} WHERE id = 1009",
    "UPDATE {t} SET id = id + 200 WHERE id IN (102, 1107)",
)

# by name: the identities of the leaves, and what the first of them has for a moment. Its changes meanwhile come without
# their old key, or without their old values, and the catalogue keeps no trace of it
FOR_A_MOMENT = {
    "default": (
        ("FULL", "FULL"),
        "ALTER TABLE {t}_0 REPLICA IDENTITY DEFAULT",
        "ALTER TABLE {t}_0 REPLICA IDENTITY FULL",
    ),
    "index": (
        ("DEFAULT", "FULL"),
        "CREATE UNIQUE INDEX {t}_x ON {t}_0 (v); ALTER TABLE {t}_0 REPLICA IDENTITY USING INDEX {t}_x",
        "ALTER TABLE {t}_0 REPLICA IDENTITY DEFAULT; DROP INDEX {t}_x",
    ),
    "nothing": (
        ("DEFAULT", "DEFAULT"),
        "ALTER TABLE {t}_0 REPLICA IDENTITY NOTHING",
        "ALTER TABLE {t}_0 REPLICA IDENTITY DEFAULT",
    ),
}
MOMENTS: dict[str, Mode] = {"default_mirror": "mirror", "default_append": "append", "index_mirror": "mirror"}
MOMENTS |= {"index_history": "history", "nothing_mirror": "mirror"}
MEANWHILE = (
    "UPDATE {t} SET id = 102 WHERE id = 2",
    "DELETE FROM {t} WHERE id = 4",
    "UPDATE {t} SET id = 1005 WHERE id = 5",
)
INSERTED = "INSERT INTO {t} VALUES (50, 'new', NULL), (1050, 'new', NULL)"


def _made(table: str, identities: tuple[str, str, str], key: str) -> list[str]:
    root, *leaves = identities
    statements = [f"CREATE TABLE {table} (id int{key}, v text, big text) PARTITION BY RANGE (id)"]
    # the second leaf has its columns in another order, and one that was dropped
    statements += [
        f"CREATE TABLE {table}_0 PARTITION OF {table} FOR VALUES FROM (0) TO (1000)",
        f"CREATE TABLE {table}_1 (gone int, big text, id int NOT NULL, v text)",
        f"ALTER TABLE {table}_1 DROP COLUMN gone",
        f"ALTER TABLE {table} ATTACH PARTITION {table}_1 FOR VALUES FROM (1000) TO (2000)",
    ]
    statements += [f"ALTER TABLE {table}_{n} ALTER big SET STORAGE EXTERNAL" for n in (0, 1)]
    statements += [f"ALTER TABLE {table}_{n} REPLICA IDENTITY {leaf}" for n, leaf in enumerate(leaves)]
    statements.append(f"ALTER TABLE {table} REPLICA IDENTITY {root}")
    for first, last in ((1, 7), (1007, 1010)):
        rows = f"SELECT i, 'v' || i, repeat('big' || i, 2000) FROM generate_series({first}, {last}) i"
        statements.append(f"INSERT INTO {table} {rows}")
    return statements


def _changed(table: str) -> list[str]:
    return [statement.format(t=table) for statement in CHANGES]


@pytest.mark.parametrize(
    ("engine", "on_driver_bytes"),
    [("auto", 128 << 20), at_night("spark", 128 << 20), at_night("spark", 0)],
    ids=["without Spark", "on_driver", "on_executors"],
)
def test_rows_are_equal(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, on_driver_bytes: int
) -> None:
    tables = {**KEYED, **KEYLESS}
    for table, identities in tables.items():
        database.execute(*_made(table, identities, " PRIMARY KEY" if table in KEYED else ""))
    followed = Followed.start(spark, database, tmp_path / "lake", *tables)
    pipeline = replace(followed.pipeline, merge_engine=engine)
    followed = replace(followed, pipeline=pipeline, on_driver_bytes=on_driver_bytes)
    assert [taken.error for taken in followed.snapshot()] == [None] * len(tables)
    for table in tables:
        database.execute(*_changed(table))
    assert [applied.error for applied in followed.sync()] == [None] * len(tables)
    followed.assert_equal()


@pytest.mark.parametrize("kinds", [["full_mixed"], at_night(["full_default", "full_mixed"])], ids=["mixed", "both"])
def test_each_mode_and_without_spark(spark: SparkSession, database: Database, tmp_path: Path, kinds: list[str]) -> None:
    modes: dict[str, Mode] = {}
    for identities in kinds:
        for mode in get_args(Mode):
            modes[f"{identities}_{mode}"] = mode
            database.execute(*_made(f"{identities}_{mode}", KEYED[identities], " PRIMARY KEY"))
    made = pipeline_of(database, tmp_path / "lake", *(f"public.{table}" for table in modes))
    tables = tuple(replace(table, mode=modes[table.name.relname]) for table in made.tables or ())
    pipeline = replace(made, tables=tables)
    assert sync(pipeline, lambda: spark).errors == ()
    for table in modes:
        database.execute(*_changed(table))
    report = sync(pipeline, lambda: spark)
    assert (report.errors, report.snapshots) == ((), ())
    followed = Followed(spark, database, pipeline, ())
    for table, mode in modes.items():
        lake = spark.read.format("delta").load(pipeline.lake.table(QualifiedName("public", table)))
        if live := live_rows(mode):
            _assert_equal(followed, table, lake.where(live))
        else:
            _assert_not_sent_is_said(lake)


@pytest.mark.parametrize("plugin", ["pgoutput", at_night("test_decoding")])
def test_an_identity_for_a_moment(spark: SparkSession, database: Database, tmp_path: Path, plugin: PluginName) -> None:
    """The table is read again, in each mode."""
    for table in MOMENTS:
        leaves, *_ = FOR_A_MOMENT[table.split("_")[0]]
        database.execute(
            *_made(table, ("DEFAULT", *leaves), " PRIMARY KEY"), f"ALTER TABLE {table} ALTER v SET NOT NULL"
        )
    made = pipeline_of(database, tmp_path / "lake", *(f"public.{table}" for table in MOMENTS), plugin=plugin)
    tables = tuple(replace(table, mode=MOMENTS[table.name.relname]) for table in made.tables or ())
    pipeline = replace(made, tables=tables)
    first = sync(pipeline, lambda: spark)
    assert first.errors == ()
    first_end = max(int(taken.lsn) for taken in first.snapshots)
    for table in MOMENTS:
        _, begin, end = FOR_A_MOMENT[table.split("_")[0]]
        # with a publication the server refuses these under NOTHING
        meanwhile = () if table == "nothing_mirror" and plugin == "pgoutput" else MEANWHILE
        for statements in (begin, *meanwhile, INSERTED, end):
            database.execute(*statements.format(t=table).split("; "))
    report = sync(pipeline, lambda: spark)
    assert (report.errors, {taken.name.relname for taken in report.snapshots}) == ((), set(MOMENTS))
    followed = Followed(spark, database, pipeline, ())
    for table, mode in MOMENTS.items():
        lake = spark.read.format("delta").load(pipeline.lake.table(QualifiedName("public", table)))
        again = f"_operation = 'snapshot' AND _commit_lsn > {first_end}"
        _assert_equal(followed, table, lake.where(live_rows(mode) or again))


def _assert_equal(followed: Followed, table: str, lake: DataFrame) -> None:
    rows = sorted(map(tuple, lake.select("id", "v", "big").collect()), key=repr)
    assert rows == followed.source_rows(QualifiedName("public", table), ["id", "v", "big"]), table


def _assert_not_sent_is_said(changes: DataFrame) -> None:
    """A null in an old row is either the row's own or named as not sent."""
    rows = {(row["_operation"], row["id"]): row for row in changes.where("_operation <> 'snapshot'").collect()}
    for key in (("update_before", 2), ("delete", 4), ("delete", 1009)):
        row = rows[key]
        whole = row["v"] == f"v{key[1]}" and row["big"] == f"big{key[1]}" * 2000
        assert row["_not_sent"] == (None if whole else ["v", "big"]), key
    moved = rows["update", 102]
    assert moved["v"] == "v2"
    assert (moved["big"], moved["_not_sent"]) in [("big2" * 2000, None), (None, ["big"])]
