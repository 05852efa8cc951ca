"""``on_schema_change: {add: ignore}``: a column that is added later stays out of the lake, whose rows are exact without
it; when the policy goes back to ``follow``, it comes with its values in all rows."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import MergeEngine, Pipeline, Table
from spark_jobs.dry_run import plan_sync
from spark_jobs.errors import NeedsSnapshotError, RefusedChangeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.schema_policy import FOLLOW_ALL, SchemaPolicy
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
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

IGNORE = SchemaPolicy(add="ignore")
ENGINES = ["auto", at_night("spark")]


@dataclass(frozen=True)
class Case:
    """What is done to a table with the columns id, a, b and doc; ``lake``: the lake's columns then;
    ``ignored``: the column that it leaves out; ``reason``: why it is read again."""

    ddl: str
    lake: str = "id a b doc"
    ignored: str = "c"
    reason: str = ""
    key: str = "PRIMARY KEY"


CASES = {
    "added": Case("ALTER TABLE {t} ADD c text"),
    "defaulted": Case("ALTER TABLE {t} ADD c int DEFAULT 7"),
    "by_row": Case("ALTER TABLE {t} ADD c float DEFAULT random()", reason="rewritten by DDL"),
    "renamed": Case("ALTER TABLE {t} ADD x int; ALTER TABLE {t} RENAME x TO c"),
    "dropped": Case("ALTER TABLE {t} ADD c int; ALTER TABLE {t} DROP c", ignored=""),
    "others": Case("ALTER TABLE {t} DROP b, ADD c int; ALTER TABLE {t} RENAME a TO z", lake="id z doc"),
    "truncated": Case(
        "ALTER TABLE {t} ADD c int; TRUNCATE {t}; INSERT INTO {t} (id) VALUES (1), (3)", reason="c was added"
    ),
    "retyped": Case("ALTER TABLE {t} ADD c int; ALTER TABLE {t} ALTER a TYPE text", reason="type of column a"),
    "of_the_same_name": Case(
        "ALTER TABLE {t} DROP b; ALTER TABLE {t} ADD c int; ALTER TABLE {t} RENAME c TO b", lake="id a doc", ignored="b"
    ),
    "keyless": Case("ALTER TABLE {t} ADD c int; UPDATE {t} SET c = id", key=""),
}


def ignoring(pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, on_schema_change=IGNORE)


def ignored(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """By status."""
    found = ((table.name.relname, table.differing.ignored) for table in pipeline_status(pipeline).tables)
    return {relname: tuple(column.attname for column in columns) for relname, columns in found if columns}


def made(name: str, key: str = "PRIMARY KEY") -> list[str]:
    return [
        f"CREATE TABLE {name} (id int {key}, a int, b int, doc text)",
        f"ALTER TABLE {name} ALTER doc SET STORAGE EXTERNAL",
        *([] if key else [f"ALTER TABLE {name} REPLICA IDENTITY FULL"]),
        f"INSERT INTO {name} SELECT g, g, -g, repeat(g::text, 5000) FROM generate_series(1, 6) g",
        *([] if key else [f"INSERT INTO {name} SELECT * FROM {name}"]),
    ]


BY_DAY = ("added", "renamed", "dropped", "others", "truncated", "of_the_same_name", "keyless")


@pytest.mark.parametrize(
    ("engine", "chosen"),
    [("auto", BY_DAY), at_night("auto", tuple(CASES)), at_night("spark", tuple(CASES))],
    ids=["auto-by day", "auto", "spark"],
)
def test_each_change(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, chosen: tuple[str, ...]
) -> None:
    cases = {name: CASES[name] for name in chosen}
    for name, case in cases.items():
        database.execute(*made(name, case.key))
    names = in_public(cases)
    following = pipeline_of(database, tmp_path / "lake", *map(str, names), engine=engine)
    pipeline = ignoring(following)
    followed = Followed(spark, database, pipeline, names)
    synced(spark, pipeline)

    for name, case in cases.items():  # rows before, after and, in the next window, long after
        database.execute(
            f"UPDATE {name} SET b = 70 WHERE id = 2",
            case.ddl.format(t=name),
            f"UPDATE {name} SET id = 20 WHERE id = 1",
            f"DELETE FROM {name} WHERE id = 4",
            f"INSERT INTO {name} SELECT * FROM {name} WHERE id = 20" if not case.key else "SELECT",
        )
    reasons = read_again(synced(spark, pipeline))
    assert reasons.keys() == {name for name, case in cases.items() if case.reason}
    assert all(cases[name].reason in reason for name, reason in reasons.items())
    _assert_without(followed, cases)
    for name in cases:
        database.execute(
            f"TRUNCATE {name}" if name == "added" else "SELECT",
            f"INSERT INTO {name} (id) VALUES (9)",
            f"UPDATE {name} SET id = 21 WHERE id = 9",
            f"INSERT INTO {name} (id) VALUES (9)",
        )
    assert read_again(synced(spark, pipeline)) == {}
    _assert_without(followed, cases)
    versions(pipeline, *names)
    assert verify(pipeline, lambda: spark).problems == ()

    assert all(taken.error is None for taken in snapshot(Run(pipeline, lambda: spark)))  # asked for
    _assert_without(followed, cases)
    database.execute(*(f"DELETE FROM {name} WHERE id = 3" for name in cases))
    assert read_again(synced(spark, pipeline)) == {}
    _assert_without(followed, cases)

    reasons = read_again(synced(spark, following))  # no row has changed since
    assert reasons.keys() == {name for name, case in cases.items() if case.ignored}
    assert "it lacks c, as on_schema_change said add: ignore, and says add: follow now" in reasons["added"]
    assert_equal(spark, following, *names)
    assert ignored(following) == {}


def _assert_without(followed: Followed, cases: Mapping[str, Case]) -> None:
    followed.assert_equal()
    for name, case in cases.items():
        _, columns = followed.lake_rows(QualifiedName("public", name))
        assert columns == case.lake.split(), name
    expected = {name: (case.ignored,) for name, case in cases.items() if case.ignored}
    assert ignored(followed.pipeline) == expected
    cut = latest_cut(followed.pipeline.lake)
    assert cut is None or all((not table.differing) == (table.name.relname == "dropped") for table in cut.tables)


def test_a_column_that_nobody_writes(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """It is known as ignored without any row after it, and comes by itself when the policy goes back."""
    (name,) = in_public(["orders"])
    database.execute(*made("orders"))
    following = pipeline_of(database, tmp_path / "lake", str(name))
    pipeline = ignoring(following)
    synced(spark, pipeline)
    database.execute("ALTER TABLE orders ADD c int DEFAULT 5")
    (planned,) = plan_sync(pipeline).columns
    assert planned.changes == ("column c was added (ignored)",)
    (table,) = synced(spark, pipeline).tables
    assert table.columns == ("c was added and is ignored",)
    assert ignored(pipeline) == {"orders": ("c",)}
    database.execute("ALTER TABLE orders RENAME c TO d")
    (table,) = synced(spark, pipeline).tables
    assert table.columns == ("c, which is ignored, was renamed to d",)
    assert ignored(pipeline) == {"orders": ("d",)}
    assert synced(spark, pipeline).tables[0].columns == ()
    assert set(read_again(synced(spark, following))) == {"orders"}
    assert_equal(spark, following, name)
    database.execute("ALTER TABLE orders ADD e int", "UPDATE orders SET d = 1, e = 2 WHERE id = 1")
    synced(spark, pipeline)
    assert ignored(pipeline) == {"orders": ("e",)}  # d is one of the lake's columns by now
    Followed(spark, database, pipeline, (name,)).assert_equal()
    (error,) = sync(replace(pipeline, on_schema_change=SchemaPolicy(add="stop")), lambda: spark).errors
    assert isinstance(error, RefusedChangeError)
    assert "column e was added, and on_schema_change says add: stop" in error.what


def test_a_column_in_the_key_stops_the_table(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    name, other = in_public(["orders", "items"])
    database.execute(*made("orders"), *made("items"))
    following = pipeline_of(database, tmp_path / "lake", str(name), str(other))
    pipeline = ignoring(following)
    synced(spark, pipeline)
    database.execute(
        "ALTER TABLE orders ADD c int NOT NULL DEFAULT 1, DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, c)",
        "INSERT INTO orders (id, c) VALUES (1, 2)",
        "DELETE FROM items WHERE id = 1",
    )
    for _ in range(2):
        (error,) = sync(pipeline, lambda: spark).errors
        assert isinstance(error, RefusedChangeError)
        assert "public.orders stops: column c is in its key now, and on_schema_change says add: ignore" in error.what
        assert_equal(spark, pipeline, other)
    synced(spark, following)
    assert_equal(spark, following, name, other)


def test_a_table_that_is_made_again(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Its numbers are others: columns are known by their names."""
    (name,) = in_public(["orders"])
    database.execute(*made("orders"))
    pipeline = ignoring(pipeline_of(database, tmp_path / "lake", str(name)))
    synced(spark, pipeline)
    database.execute(
        "DROP TABLE orders",
        "CREATE TABLE orders (c int, doc text, b int, a int, id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (1, 'one', 2, 3, 4)",
    )
    synced(spark, pipeline)
    database.execute("INSERT INTO orders VALUES (5, 'two', 6, 7, 8)", "UPDATE orders SET c = 9, b = 9 WHERE id = 4")
    synced(spark, pipeline)
    followed = Followed(spark, database, pipeline, (name,))
    followed.assert_equal()
    assert followed.lake_rows(name)[1] == ["doc", "b", "a", "id"]
    assert ignored(pipeline) == {"orders": ("c",)}


def test_with_test_decoding(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    names = in_public(["orders", "events"])
    database.execute(*made("orders"), *made("events", key=""))
    following = pipeline_of(database, tmp_path / "lake", *map(str, names), plugin="test_decoding")
    pipeline = ignoring(following)
    followed = Followed(spark, database, pipeline, names)
    synced(spark, pipeline)
    for name in names:
        database.execute(f"ALTER TABLE {name} ADD c int DEFAULT 3", f"UPDATE {name} SET c = id, a = 8 WHERE id < 3")
    synced(spark, pipeline)
    followed.assert_equal()
    for name in names:
        database.execute(f"DELETE FROM {name} WHERE id = 1", f"INSERT INTO {name} VALUES (7, 7, 7, 'x', 7)")
    assert read_again(synced(spark, pipeline)) == {}
    followed.assert_equal()
    assert ignored(pipeline) == {"orders": ("c",), "events": ("c",)}
    synced(spark, following)
    assert_equal(spark, following, *names)


def test_partitions(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """A partition that is attached later is read again without the column."""
    (name,) = in_public(["orders"])
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int) PARTITION BY RANGE (id)",
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "INSERT INTO orders SELECT g, g FROM generate_series(1, 5) g",
    )
    pipeline = ignoring(pipeline_of(database, tmp_path / "lake", str(name)))
    followed = Followed(spark, database, pipeline, (name,))
    synced(spark, pipeline)
    database.execute("ALTER TABLE orders ADD c int DEFAULT 3", "UPDATE orders SET c = 1, a = 2 WHERE id = 1")
    synced(spark, pipeline)
    followed.assert_equal()
    database.execute(
        "CREATE TABLE orders_2 (LIKE orders INCLUDING ALL)",
        "INSERT INTO orders_2 SELECT g, g, g FROM generate_series(10, 15) g",
        "ALTER TABLE orders ATTACH PARTITION orders_2 FOR VALUES FROM (10) TO (20)",
    )
    report = synced(spark, pipeline)
    assert read_again(report) == {}
    followed.assert_equal()
    assert followed.lake_rows(name)[1] == ["id", "a"]
    assert ignored(pipeline) == {"orders": ("c",)}


@pytest.mark.nightly  # by day the modes with columns that are kept: test_kept_columns
def test_the_other_modes_and_the_past(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """What is rebuilt, put into another mode from the lake's own data, or copied as of an LSN lacks the column too."""
    modes: tuple[Mode, ...] = ("mirror", "soft_delete", "history", "append")
    names = in_public(modes)
    for mode in modes:
        database.execute(*made(mode))
    plain = pipeline_of(database, tmp_path / "lake", *modes)
    following = replace(plain, tables=tuple(Table(n, m) for n, m in zip(names, modes, strict=True)))
    pipeline = ignoring(following)
    synced(spark, pipeline)
    for mode in modes:
        database.execute(f"UPDATE {mode} SET a = 50 WHERE id = 1")
    capture(pipeline)
    for mode in modes:
        database.execute(f"ALTER TABLE {mode} ADD c int DEFAULT 4; UPDATE {mode} SET a = 60, c = 5 WHERE id = 2")
    capture(pipeline)
    database.execute(*(f"DELETE FROM {mode} WHERE id = 3" for mode in modes))
    assert read_again(synced(spark, pipeline)) == {}
    _assert_live_rows(spark, database, pipeline, names)
    before = {name: lake_rows(spark, pipeline.lake.table(name)) for name in names}

    first = ChangeLog(pipeline.lake.change_log).markers()[0].window.lo
    assert rebuild(Run(following, lambda: spark), first, _end(pipeline)).errors == ()
    for name in names:  # in any order
        rows, were = lake_rows(spark, pipeline.lake.table(name)), before[name]
        assert sorted(map(str, rows.to_pylist())) == sorted(map(str, were.to_pylist()))
    assert ignored(pipeline) == dict.fromkeys(modes, ("c",))

    copied = table_as_of(Run(pipeline, lambda: spark), names[0], _end(pipeline), str(tmp_path / "copy"))
    copy = lake_rows(spark, copied.path)
    assert sorted(map(str, copy.to_pylist())) == sorted(map(str, before[names[0]].to_pylist()))

    swapped = replace(pipeline, tables=(Table(names[0], "history"), *(pipeline.tables or ())[1:3], Table(names[3])))
    report = sync(swapped, lambda: spark)
    assert not report.errors
    assert {table.name: table.mode for table in report.modes} == {names[0]: "history", names[3]: "mirror"}
    _assert_live_rows(spark, database, swapped, names)
    assert ignored(swapped) == dict.fromkeys(modes, ("c",))
    synced(spark, replace(swapped, on_schema_change=FOLLOW_ALL))
    _assert_live_rows(spark, database, swapped, names, with_all=True)


def _end(pipeline: Pipeline) -> Lsn:
    log = pipeline_status(pipeline).log
    assert log is not None
    return log.landed_end


def _assert_live_rows(
    spark: SparkSession,
    database: Database,
    pipeline: Pipeline,
    names: tuple[QualifiedName, ...],
    *,
    with_all: bool = False,
) -> None:
    wanted = ["id", "a", "b", "doc", *(["c"] if with_all else [])]
    for name in names:
        rows = lake_rows(spark, pipeline.lake.table(name))
        assert [column for column in rows.column_names if not column.startswith("_")] == wanted
        if pipeline.table(name).mode == "append":
            continue
        live = [
            tuple(row[column] for column in wanted)
            for row in rows.to_pylist()
            if row.get("_deleted_at") is None and row.get("_valid_to_lsn") is None
        ]
        with database.connect() as connection:
            source = connection.execute(f"SELECT {', '.join(wanted)} FROM {name}").fetchall()
        assert sorted(live, key=str) == sorted(source, key=str), name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("on_driver_bytes", [128 << 20, at_night(0)], ids=["on_driver", "on_executors"])
@pytest.mark.parametrize("rounds", [16, at_night(40)])
def test_random_changes(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, on_driver_bytes: int, rounds: int
) -> None:
    """DDL between rows of one window and of several, with and without a key."""
    chance = random.Random(11)  # noqa: S311 - not for cryptography
    names = in_public(["orders", "events"])
    database.execute(*made("orders"), *made("events", key=""))
    following = pipeline_of(database, tmp_path / "lake", *map(str, names), engine=engine)
    pipeline = ignoring(following)
    synced(spark, pipeline)
    followed = Followed(spark, database, pipeline, names, on_driver_bytes)
    added: dict[str, list[str]] = {name.relname: [] for name in names}
    for number in range(rounds):
        for relname, columns in added.items():
            database.execute(_ddl(chance, relname, columns, number), *_changes(chance, relname, columns, number))
        if chance.random() < 0.3:
            capture(pipeline)
        if number % 8 == 7:
            if on_driver_bytes == 0:  # what needs a re-snapshot is left to the sync
                errors = (table.error for table in followed.sync())
                assert all(error is None or isinstance(error, NeedsSnapshotError) for error in errors)
            synced(spark, pipeline)
            followed.assert_equal()
            for name in names:
                assert followed.lake_rows(name)[1] == ["id", "a", "b", "doc"]
                assert set(ignored(pipeline).get(name.relname, ())) == set(added[name.relname])
    assert verify(pipeline, lambda: spark).problems == ()
    synced(spark, following)
    assert_equal(spark, following, *names)


def _ddl(chance: random.Random, name: str, added: list[str], number: int) -> str:
    kind = chance.choice(["add", "default", "rename", "drop", "", "", ""])
    if kind in ("add", "default"):
        added.append(f"c{number}")
        return f"ALTER TABLE {name} ADD c{number} int" + (f" DEFAULT {number}" if kind == "default" else "")
    if kind == "drop" and added:
        return f"ALTER TABLE {name} DROP {added.pop(chance.randrange(len(added)))}"
    if kind == "rename" and added:
        place = chance.randrange(len(added))
        old, added[place] = added[place], f"r{number}"
        return f"ALTER TABLE {name} RENAME {old} TO r{number}"
    return "SELECT"


def _changes(chance: random.Random, name: str, added: list[str], number: int) -> list[str]:
    kind, other = chance.randrange(12), chance.randrange(12)
    column = chance.choice(added) if added else "a"
    one = f"ctid = (SELECT min(ctid) FROM {name} WHERE id = {kind})"
    return [
        f"INSERT INTO {name} (id, a, {column if column != 'a' else 'b'}) SELECT {kind}, {other}, {other}"
        + (f" WHERE NOT EXISTS (SELECT FROM {name} WHERE id = {kind})" if name == "orders" else ""),
        f"UPDATE {name} SET {column} = {other} WHERE {one}",
        *chance.choice(
            [
                [f"DELETE FROM {name} WHERE {one}"],
                [f"UPDATE {name} SET b = {kind} WHERE id = {other}"],
                [f"UPDATE {name} SET id = {100 + number} WHERE {one}"],
                [f"TRUNCATE {name}"] if chance.random() < 0.1 else [],
            ]
        ),
    ]
