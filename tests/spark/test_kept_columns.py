"""``on_schema_change: {drop: keep}``: a column that is dropped at the source stays in the lake with its values.

The oracle is a twin of each table in the source, which is not replicated: it gets all the same statements, except those
that drop a column.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import MergeEngine, Pipeline, Table
from spark_jobs.dry_run import plan_sync
from spark_jobs.errors import ConfigurationError, RefusedChangeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.options.schema_policy import SchemaPolicy
from spark_jobs.options.table_mode import Mode, holds_changes
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.recover import recover
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import lake_rows
from tests.fixtures.servers import Database
from tests.spark.altered_tables import assert_equal, in_public, read_again, synced, versions
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

KEEP = SchemaPolicy(drop="keep")
ENGINES = ["auto", at_night("spark")]
MODES: tuple[Mode, ...] = ("mirror", "soft_delete", "history", "append")


@dataclass(frozen=True)
class Case:
    """What is done to a table with the columns id, a, b and doc. ``drop``: the columns that its twin keeps; ``ddl``:
    what is done to both. ``made_with``: done before the first sync."""

    drop: str
    ddl: str = "SELECT"
    made_with: str = "SELECT"


CASES = {
    "plain": Case("b"),
    "long_values": Case("doc"),
    "several": Case("a b doc"),
    "with_another": Case("b", "ALTER TABLE {t} ADD c int DEFAULT 7"),
    "with_an_empty_one": Case("b", "ALTER TABLE {t} ADD c text"),
    "renamed": Case("b", "ALTER TABLE {t} RENAME a TO z"),
    "truncated": Case("b", "TRUNCATE {t}; INSERT INTO {t} (id, a) VALUES (1, 1), (3, 3)"),
    "many_rows": Case("b", "UPDATE {t} SET a = a + 1"),
    "of_an_enum": Case("e", made_with="ALTER TABLE {t} ADD e mood DEFAULT 'sad'"),
    "exact": Case(
        "n", made_with="ALTER TABLE {t} ADD n numeric(9,2) DEFAULT 1.5, ADD at timestamptz DEFAULT '2026-01-01'"
    ),
}


class Twins:
    """Tables of the source with their twins."""

    def __init__(self, spark: SparkSession, database: Database, pipeline: Pipeline) -> None:
        self.spark, self.database, self.pipeline = spark, database, pipeline

    def make(self, name: str, key: str = "PRIMARY KEY", made_with: str = "SELECT") -> None:
        self.both(
            name,
            f"CREATE TABLE {{t}} (id int {key}, a int, b int, doc text)",
            "ALTER TABLE {t} ALTER doc SET STORAGE EXTERNAL",
            made_with,
            "INSERT INTO {t} (id, a, b, doc) SELECT g, g, -g, repeat(g::text, 5000) FROM generate_series(1, 8) g",
            *(() if key else ("ALTER TABLE {t} REPLICA IDENTITY FULL",)),
        )

    def both(self, name: str, *statements: str) -> None:
        self.database.execute(*(each.format(t=table) for each in statements for table in (name, f"twin_{name}")))

    def drop(self, name: str, *columns: str) -> None:
        self.database.execute(f"ALTER TABLE {name} {', '.join(f'DROP {column}' for column in columns)}")
        for column in columns:
            self.database.execute(f"ALTER TABLE twin_{name} ALTER {column} DROP DEFAULT")

    def assert_equal(self, *names: str) -> None:
        """Each table of the lake holds the rows of its source's twin."""
        for name in names:
            followed = Followed(self.spark, self.database, self.pipeline, ())
            rows, columns = followed.lake_rows(QualifiedName("public", name))
            assert rows == followed.source_rows(QualifiedName("public", f"twin_{name}"), columns), name


def keeping(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, on_schema_change=KEEP)


def kept(pipeline: Pipeline) -> dict[str, set[str]]:
    """By status."""
    found = ((table.name.relname, table.differing.kept) for table in pipeline_status(pipeline).tables)
    return {relname: {column.attname for column in columns} for relname, columns in found if columns}


BY_DAY = ("plain", "several", "renamed", "truncated", "of_an_enum", "exact")


@pytest.mark.parametrize(
    ("engine", "chosen"),
    [("auto", BY_DAY), at_night("auto", tuple(CASES)), at_night("spark", tuple(CASES))],
    ids=["auto-by day", "auto", "spark"],
)
def test_each_change(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, chosen: tuple[str, ...]
) -> None:
    cases = {name: CASES[name] for name in chosen}
    following = pipeline_of(database, tmp_path / "lake", *(f"public.{name}" for name in cases), engine=engine)
    pipeline = keeping(following)
    twins = Twins(spark, database, pipeline)
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
    for name, case in cases.items():
        twins.make(name, made_with=case.made_with)
    synced(spark, pipeline)

    for name, case in cases.items():  # rows before, after and, in the next window, long after
        first, *_ = case.drop.split()
        twins.both(
            name,
            f"INSERT INTO {{t}} SELECT * FROM {name} WHERE false",
            f"UPDATE {{t}} SET {first} = NULL WHERE id = 2",
            f"UPDATE {{t}} SET {first} = (SELECT {first} FROM {name} WHERE id = 5) WHERE id = 6",
            "UPDATE {t} SET id = 10 WHERE id = 6",
        )
        twins.drop(name, *case.drop.split())
        twins.both(
            name,
            case.ddl,
            "UPDATE {t} SET id = 20 WHERE id = 1",
            "UPDATE {t} SET id = 21 WHERE id = 20",
            "DELETE FROM {t} WHERE id = 4",
            "INSERT INTO {t} (id) VALUES (4)",
            "UPDATE {t} SET id = id + 100 WHERE id = 10",
        )
    assert read_again(synced(spark, pipeline)) == {}
    twins.assert_equal(*cases)
    for name in cases:
        twins.both(
            name,
            *(["TRUNCATE {t}"] if name == "plain" else []),
            "INSERT INTO {t} (id) VALUES (9)",
            "UPDATE {t} SET id = 30 WHERE id = 5",
            "UPDATE {t} SET id = 5 WHERE id = 9",
            "DELETE FROM {t} WHERE id = 3",
        )
    assert read_again(synced(spark, pipeline)) == {}
    twins.assert_equal(*cases)
    assert kept(pipeline) == {name: set(case.drop.split()) for name, case in cases.items()}
    cut = latest_cut(pipeline.lake)
    assert cut is not None
    assert all(table.differing.kept for table in cut.tables)
    versions(pipeline, *in_public(cases))
    assert verify(pipeline, lambda: spark).problems == ()
    assert verify(pipeline, lambda: spark, how=Thoroughness(quick=True)).problems == ()

    for name in cases:  # with the policy of before, the next change drops them
        twins.both(name, "INSERT INTO {t} (id) VALUES (40)")
    assert read_again(synced(spark, following)) == {}
    assert_equal(spark, following, *in_public(cases))
    assert kept(following) == {}


def test_nothing_else_happened(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """A drop is recorded without any row after it, and said before and when it is applied."""
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", "public.orders"))
    twins = Twins(spark, database, pipeline)
    twins.make("orders")
    synced(spark, pipeline)
    twins.drop("orders", "b")
    (planned,) = plan_sync(pipeline).columns
    assert planned.changes == ("column b was dropped (kept)",)
    (table,) = synced(spark, pipeline).tables
    assert table.columns == ("b was dropped and is kept",)
    twins.assert_equal("orders")
    assert kept(pipeline) == {"orders": {"b"}}
    assert synced(spark, pipeline).tables[0].columns == ()

    stopping = replace(pipeline, on_schema_change=SchemaPolicy(drop="stop"))  # at further drops
    twins.both("orders", "UPDATE {t} SET id = 70 WHERE id = 7")
    synced(spark, stopping)
    twins.assert_equal("orders")


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_values_that_arrived_in_the_same_window(
    spark: SparkSession, database: Database, tmp_path: Path, binary: bool
) -> None:
    """The catalogue no longer describes the column when these values are landed."""
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", "public.orders", binary=binary))
    twins = Twins(spark, database, pipeline)
    twins.make("orders", made_with="ALTER TABLE {t} ADD n numeric(9,2), ADD f float, ADD day date")
    synced(spark, pipeline)
    twins.both(
        "orders",
        "UPDATE {t} SET b = 70, n = 7.25, f = 1e300, day = '2026-11-26', doc = 'x' WHERE id = 2",
        "INSERT INTO {t} VALUES (50, 1, 2, 'y', 3, 4, '2025-01-01')",
    )
    twins.drop("orders", "b", "doc", "n", "f", "day")
    twins.both("orders", "UPDATE {t} SET a = 5 WHERE id = 50", "INSERT INTO {t} (id) VALUES (51)")
    synced(spark, pipeline)
    twins.assert_equal("orders")


@pytest.mark.parametrize("mode", ["mirror", at_night("history")])
def test_an_ignored_column_that_came_and_went_within_a_window(
    spark: SparkSession, database: Database, tmp_path: Path, mode: Mode
) -> None:
    """The catalogue never showed it, and the lake does not need it: the table goes on, with what it keeps."""
    pipeline = pipeline_of(database, tmp_path / "lake", "public.orders", engine="auto")
    tables = (Table(QualifiedName("public", "orders"), mode),)
    pipeline = replace(pipeline, tables=tables, on_schema_change=SchemaPolicy(add="ignore", drop="keep"))
    twins = Twins(spark, database, pipeline)
    twins.make("orders")
    synced(spark, pipeline)
    twins.drop("orders", "b")
    synced(spark, pipeline)
    twins.both(
        "orders",
        "UPDATE {t} SET a = 70 WHERE id = 1",
        "ALTER TABLE {t} ADD c int",
        "UPDATE {t} SET a = 70, c = 1 WHERE id = 2",
        "ALTER TABLE {t} ADD d int, ADD e text",
        "INSERT INTO {t} (id, a, c, d, e) VALUES (50, 1, 2, 3, 'x')",
        "UPDATE {t} SET id = 30, e = 'y' WHERE id = 3",
        "ALTER TABLE {t} DROP c, DROP d, DROP e",
        "DELETE FROM {t} WHERE id = 4",
    )
    assert read_again(synced(spark, pipeline)) == {}
    assert_live_rows(twins, in_public(["orders"]))
    assert kept(pipeline) == {"orders": {"b"}}


# by day the past of columns that go is shown without this policy: test_mode_changes, test_replay
@pytest.mark.parametrize(("engine", "past"), [("auto", False), at_night("auto", True), at_night("spark", True)])
def test_the_other_modes_and_the_past(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, past: bool
) -> None:
    names = in_public(MODES)
    plain = pipeline_of(database, tmp_path / "lake", *map(str, names), engine=engine)
    tables = tuple(Table(name, mode) for name, mode in zip(names, MODES, strict=True))
    pipeline = keeping(replace(plain, tables=tables))
    twins = Twins(spark, database, pipeline)
    for mode in MODES:
        twins.make(mode)
    synced(spark, pipeline)
    for mode in MODES:
        twins.both(mode, "UPDATE {t} SET b = 50 WHERE id = 1")
    capture(pipeline)
    for mode in MODES:
        twins.both(mode, "UPDATE {t} SET b = 60 WHERE id = 2")
        twins.drop(mode, "b")
        twins.both(mode, "UPDATE {t} SET a = 70 WHERE id IN (2, 3)", "INSERT INTO {t} (id, a) VALUES (11, 1)")
    capture(pipeline)
    for mode in MODES:
        twins.both(
            mode,
            "DELETE FROM {t} WHERE id = 4",
            "UPDATE {t} SET a = 80 WHERE id IN (3, 11)",
            "UPDATE {t} SET id = 50 WHERE id = 5",
        )
    assert read_again(synced(spark, pipeline)) == {}
    assert kept(pipeline) == {mode: {"b"} for mode in MODES}
    assert_live_rows(twins, names)
    by_id = rows_of(spark, pipeline, "soft_delete")
    assert [(row["b"], row["_deleted_at"] is not None) for row in by_id if row["id"] in (4, 5)] == [
        (-4, True),
        (-5, True),
    ]
    versions_of_3 = [(row["a"], row["b"]) for row in rows_of(spark, pipeline, "history") if row["id"] == 3]
    assert sorted(versions_of_3) == [(3, -3), (70, -3), (80, -3)]
    changes = [row for row in rows_of(spark, pipeline, "append") if row["id"] in (2, 11)]
    assert [(row["_operation"], row["id"], row["a"], row["b"], "b" in (row["_not_sent"] or [])) for row in changes] == [
        ("snapshot", 2, 2, -2, False),
        ("update", 2, 2, 60, False),
        ("update", 2, 70, None, True),
        ("insert", 11, 1, None, False),
        ("update", 11, 80, None, True),
    ]

    if past:
        assert_kept_in_the_past(twins, names, tmp_path / "copy")


def assert_kept_in_the_past(twins: Twins, names: tuple[QualifiedName, ...], copy: Path) -> None:
    """In what is rebuilt, copied as of an LSN, and put into another mode from the lake's own data."""
    spark, pipeline = twins.spark, twins.pipeline
    before = {name.relname: rows_of(spark, pipeline, name.relname) for name in names}
    first, end = ChangeLog(pipeline.lake.change_log).markers()[0].window.lo, _end(pipeline)
    assert rebuild(Run(pipeline, lambda: spark), first, end).errors == ()
    assert {name.relname: rows_of(spark, pipeline, name.relname) for name in names} == before
    assert kept(pipeline) == {mode: {"b"} for mode in MODES}
    copied = table_as_of(Run(pipeline, lambda: spark), names[0], end, str(copy))
    assert in_order(lake_rows(spark, copied.path).to_pylist()) == before["mirror"]

    swapped = replace(pipeline, tables=(Table(names[0], "history"), Table(names[1]), *(pipeline.tables or ())[2:]))
    report = sync(swapped, lambda: spark)
    assert not report.errors
    assert not report.snapshots
    assert_live_rows(Twins(spark, twins.database, swapped), names)
    assert kept(swapped) == {mode: {"b"} for mode in MODES}


def _end(pipeline: Pipeline) -> Lsn:
    log = pipeline_status(pipeline).log
    assert log is not None
    return log.landed_end


def rows_of(spark: SparkSession, pipeline: Pipeline, relname: str) -> list[dict[str, Any]]:
    return in_order(lake_rows(spark, pipeline.lake.table(QualifiedName("public", relname))).to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row.get("_commit_lsn") or 0, row.get("_ordinal") or 0, str(row)))


def assert_live_rows(twins: Twins, names: tuple[QualifiedName, ...]) -> None:
    wanted = ["id", "a", "b", "doc"]
    for name in names:
        if holds_changes(twins.pipeline.table(name).mode):
            continue
        live = [
            tuple(row[column] for column in wanted)
            for row in rows_of(twins.spark, twins.pipeline, name.relname)
            if row.get("_deleted_at") is None and row.get("_valid_to_lsn") is None
        ]
        with twins.database.connect() as connection:
            source = connection.execute(f"SELECT {', '.join(wanted)} FROM twin_{name.relname}").fetchall()
        assert sorted(live, key=str) == sorted(source, key=str), name


# what would lose the values → what is done then, and the reason
LOSING = {
    "retyped": ("ALTER TABLE {t} ALTER a TYPE text", "the type of column a was changed"),
    "at_once": ("ALTER TABLE {t} ALTER a TYPE text, DROP b", "the type of column a was changed"),
    "key_dropped": ("ALTER TABLE {t} DROP id, ADD id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "column id"),
    "made_again": (
        "DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY, a int, b int, doc text); INSERT INTO {t} VALUES (1, 2)",
        "another table",
    ),
    "made_with_others": (
        "DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY, x int, y int, z int); INSERT INTO {t} VALUES (1, 2)",
        "another table",
    ),
}


def test_no_snapshot_by_itself_loses_values(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    names = in_public(LOSING)
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", *map(str, names)))
    twins = Twins(spark, database, pipeline)
    for name in LOSING:
        twins.make(name)
    synced(spark, pipeline)
    for name in LOSING:
        if name != "at_once":
            twins.drop(name, "b")
    synced(spark, pipeline)
    for name, (ddl, _) in LOSING.items():
        database.execute(ddl.format(t=name))
    for _ in range(2):
        report = sync(pipeline, lambda: spark)
        assert [taken.name.relname for taken in report.snapshots] == ["at_once"]  # no other is even exported
        errors = {table.name.relname: table.error for table in report.snapshots if table.error}
        errors |= {table.name.relname: table.error for table in report.tables if table.error}
        assert errors.keys() == LOSING.keys()
        for name, error in errors.items():
            assert isinstance(error, RefusedChangeError), error
            assert LOSING[name][1] in error.what, name
            assert "a new snapshot would lose column " in error.what
            assert "on_schema_change says drop: keep" in error.what
            assert f"postgres-cdc snapshot --table 'public.{name}'" in error.hint
        twins.assert_equal(*LOSING)
    taken = snapshot(Run(pipeline, lambda: spark), names)
    assert {table.name.relname: table.lost for table in taken} == {
        name: () if name == "at_once" else ("b",) for name in LOSING
    }
    synced(spark, pipeline)
    assert_equal(spark, pipeline, *names)
    assert kept(pipeline) == {}


def test_another_type_in_the_configuration(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", "public.orders"))
    twins = Twins(spark, database, pipeline)
    twins.make("orders", made_with="ALTER TABLE {t} ADD j jsonb")
    synced(spark, pipeline)
    twins.drop("orders", "b")
    synced(spark, pipeline)
    options = ColumnOptions(ChosenTypes((("j", ChosenType("variant")),)))
    chosen = replace(pipeline, tables=(replace((pipeline.tables or ())[0], options=options),))
    (error,) = sync(chosen, lambda: spark).errors
    assert isinstance(error, RefusedChangeError)
    assert "a new snapshot would lose column b" in error.what
    twins.assert_equal("orders")
    database.execute("ALTER TABLE orders DROP j")
    (error,) = sync(chosen, lambda: spark).errors
    assert "has no column j that is followed, and types: names it" in error.what


def test_tables_without_a_key(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Refused: rows are found by all their values. Mode append finds none."""
    name, events = in_public(["orders", "events"])
    plain = pipeline_of(database, tmp_path / "lake", str(name), str(events))
    pipeline = keeping(replace(plain, tables=(Table(name), Table(events, "append"))))
    twins = Twins(spark, database, pipeline)
    for relname in ("orders", "events"):
        twins.make(relname, key="")
    synced(spark, pipeline)
    for relname in ("orders", "events"):
        twins.drop(relname, "b")
        twins.both(relname, "DELETE FROM {t} WHERE id = 1", "INSERT INTO {t} (id) VALUES (9)")
    for _ in range(2):
        (error,) = sync(pipeline, lambda: spark).errors
        assert isinstance(error, RefusedChangeError)
        assert "column b was dropped, and the table has no key" in error.what
        assert "postgres-cdc snapshot --table 'public.orders'" in error.hint
    changes = rows_of(spark, pipeline, "events")[-2:]
    found = [(row["_operation"], row["id"], row["b"], row["_not_sent"]) for row in changes]
    assert found == [("delete", 1, None, ["b"]), ("insert", 9, None, None)]
    assert all(taken.error is None for taken in snapshot(Run(pipeline, lambda: spark), [name]))
    synced(spark, pipeline)
    assert_equal(spark, pipeline, name)


def test_a_new_column_of_the_same_name(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    names = in_public(["added", "renamed", "again", "cased"])
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", *map(str, names)))
    twins = Twins(spark, database, pipeline)
    for name in names:
        twins.make(name.relname)
    synced(spark, pipeline)
    for name in names:
        twins.drop(name.relname, "b")
        twins.both(name.relname, "UPDATE {t} SET a = 90 WHERE id = 3")
    synced(spark, pipeline)
    database.execute(
        "ALTER TABLE added ADD b int",
        "ALTER TABLE renamed RENAME a TO b",
        "ALTER TABLE again ADD b int",
        'ALTER TABLE cased ADD "B" int',
        *(f"UPDATE {name} SET doc = 'x' WHERE id = 2" for name in names),
    )
    for _ in range(2):
        errors = sync(pipeline, lambda: spark).errors
        assert len(errors) == 4
        for error in errors:
            assert isinstance(error, RefusedChangeError)
            assert "the dropped column b has the name of another column now" in error.what
            assert "postgres-cdc snapshot --table" in error.hint
    assert all(taken.error is None for taken in snapshot(Run(pipeline, lambda: spark), names[:2]))
    assert len(sync(pipeline, lambda: spark).errors) == 2
    assert_equal(spark, pipeline, *names[:2])

    # under other names they join the kept ones
    database.execute('ALTER TABLE cased RENAME "B" TO c', "ALTER TABLE again RENAME b TO c")
    for relname in ("cased", "again"):
        database.execute(f"ALTER TABLE twin_{relname} ADD c int", f"UPDATE twin_{relname} SET doc = 'x' WHERE id = 2")
        twins.both(relname, "UPDATE {t} SET c = 5 WHERE id = 4")
    synced(spark, pipeline)
    twins.assert_equal("cased", "again")


@pytest.mark.parametrize("policy", [KEEP, replace(KEEP, add="ignore")], ids=["followed", "ignored"])
def test_a_name_that_another_column_had_for_a_time(
    spark: SparkSession, database: Database, tmp_path: Path, policy: SchemaPolicy
) -> None:
    """Its values are not those of the kept column, and nothing that was sent shows it."""
    names = in_public(["orders", "at_once", "beside"])
    plain = pipeline_of(database, tmp_path / "lake", *map(str, names))
    pipeline = replace(plain, on_schema_change=policy)
    twins = Twins(spark, database, pipeline)
    taken = [
        "ALTER TABLE {t} DROP doc",
        "ALTER TABLE {t} ADD doc text",
        "INSERT INTO {t} VALUES (50, 1, 2, 'of another')",
        "ALTER TABLE {t} DROP doc",
    ]
    for name in names:
        twins.make(name.relname)
    synced(spark, pipeline)
    database.execute(*(each.format(t="orders") for each in taken))
    database.execute("; ".join(taken).format(t="at_once"))
    database.execute(
        "ALTER TABLE beside ADD c int",
        "UPDATE beside SET c = 3 WHERE id = 2",
        "ALTER TABLE beside DROP b",
        "UPDATE beside SET c = 4 WHERE id = 3",  # b, renamed, would be sent like this too
        "ALTER TABLE beside DROP c",
    )
    errors = sync(pipeline, lambda: spark).errors
    assert len(errors) == 3
    for error in errors:
        assert isinstance(error, RefusedChangeError)
        assert "another column may have had the name of column doc" in error.what or "public.beside" in error.what
    twins.assert_equal("orders", "at_once", "beside")


def test_a_new_chapter(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", "public.orders", "public.items"))
    twins = Twins(spark, database, pipeline)
    twins.make("orders")
    twins.make("items")
    synced(spark, pipeline)
    twins.drop("orders", "b")
    synced(spark, pipeline)
    database.execute(f"SELECT pg_drop_replication_slot('{pipeline.source.slot}')", "DELETE FROM items WHERE id = 1")
    (error,) = recover(pipeline, lambda: spark).errors
    assert isinstance(error, RefusedChangeError)
    assert "a new snapshot would lose column b" in error.what
    twins.assert_equal("orders")
    assert_equal(spark, pipeline, QualifiedName("public", "items"))
    assert snapshot(Run(pipeline, lambda: spark), in_public(["orders"]))[0].lost == ("b",)
    synced(spark, pipeline)
    assert_equal(spark, pipeline, *in_public(["orders", "items"]))


def test_plugin_test_decoding_is_refused(database: Database, tmp_path: Path) -> None:
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", "public.orders", plugin="test_decoding"))
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    with pytest.raises(ConfigurationError, match="drop: keep cannot be used with plugin: test_decoding"):
        sync(pipeline, lambda: pytest.fail("no Spark is needed"))


def test_partitions(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Reading a partition again would lose the values of its rows: the table stops."""
    name = QualifiedName("public", "orders")
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", str(name)))
    twins = Twins(spark, database, pipeline)
    twins.both(
        "orders",
        "CREATE TABLE {t} (id int PRIMARY KEY, a int, b int) PARTITION BY RANGE (id)",
        "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES FROM (10) TO (20)",
        "INSERT INTO {t} SELECT g, g, -g FROM generate_series(1, 15) g",
    )
    synced(spark, pipeline)
    twins.drop("orders", "b")
    twins.both("orders", "UPDATE {t} SET a = 2 WHERE id IN (3, 12)", "UPDATE {t} SET id = 16 WHERE id = 1")
    database.execute("UPDATE twin_orders SET b = NULL WHERE id = 16")  # it came as a delete and an insert
    synced(spark, pipeline)
    twins.assert_equal("orders")
    database.execute("ALTER TABLE orders DETACH PARTITION orders_2")
    (error,) = sync(pipeline, lambda: spark).errors
    assert isinstance(error, RefusedChangeError)
    assert "partition public.orders_2 was detached or dropped" in error.what
    assert "a new snapshot would lose column b" in error.what
    twins.assert_equal("orders")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("on_driver_bytes", [128 << 20, at_night(0)], ids=["on_driver", "on_executors"])
@pytest.mark.parametrize("rounds", [12, at_night(40)])
def test_random_changes(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, on_driver_bytes: int, rounds: int
) -> None:
    """DDL between the rows of each window."""
    chance = random.Random(11)  # noqa: S311 - not for cryptography
    name = "orders"
    pipeline = keeping(pipeline_of(database, tmp_path / "lake", f"public.{name}", engine=engine))
    twins = Twins(spark, database, pipeline)
    twins.make(name)
    synced(spark, pipeline)
    followed = Followed(spark, database, pipeline, in_public([name]), on_driver_bytes)
    columns, dropped = ["a", "b", "doc"], set[str]()
    for number in range(rounds):
        for statement in _changes(chance, columns, 2 * number):
            twins.both(name, statement)
        kind = chance.choice(["add", "default", "rename", "drop", "", ""])
        if kind in ("add", "default"):
            columns.append(f"c{number}")
            twins.both(
                name, f"ALTER TABLE {{t}} ADD c{number} int" + (f" DEFAULT {number}" if kind == "default" else "")
            )
        elif kind == "rename" and columns:
            place = chance.randrange(len(columns))
            old, columns[place] = columns[place], f"r{number}"
            twins.both(name, f"ALTER TABLE {{t}} RENAME {old} TO r{number}")
        elif kind == "drop" and len(columns) > 1:
            gone = columns.pop(chance.randrange(len(columns)))
            in_lake = gone in followed.lake_rows(QualifiedName("public", name))[1]
            if in_lake:
                twins.drop(name, gone)
                dropped.add(gone)
            else:  # added and dropped, or renamed, in between: its values, if any, never reach the lake by this name
                columns.append(gone)
        for statement in _changes(chance, columns, 2 * number + 1):
            twins.both(name, statement)
        capture(pipeline)  # with more DDL between two looks the table might need a re-snapshot
        if number % 4 == 3:
            if on_driver_bytes == 0:
                assert all(table.error is None for table in followed.sync())
            synced(spark, pipeline)
            twins.assert_equal(name)
            assert kept(pipeline).get(name, set()) == dropped
    assert len(dropped) > rounds // 13
    assert verify(pipeline, lambda: spark).problems == ()


def _changes(chance: random.Random, columns: list[str], step: int) -> list[str]:
    one, other, column = chance.randrange(12), chance.randrange(12), chance.choice(columns)
    return [
        f"INSERT INTO {{t}} (id, {column}) SELECT {one}, {other} WHERE NOT EXISTS (SELECT FROM {{t}} WHERE id = {one})",
        f"UPDATE {{t}} SET {column} = {other} WHERE id = {chance.randrange(12)}",
        chance.choice(
            [
                f"DELETE FROM {{t}} WHERE id = {other}",
                f"UPDATE {{t}} SET {column} = {step} WHERE id < {other}",
                f"UPDATE {{t}} SET id = {1000 + step} WHERE id = {other}",
                f"UPDATE {{t}} SET id = {-100 * step - 100} - id WHERE id BETWEEN {other} AND {other + 1}",
            ]
        ),
    ]
