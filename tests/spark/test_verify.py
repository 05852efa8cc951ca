"""``verify``: each kind of difference is named by its key, what others do meanwhile is none, and of what cannot be
compared nothing else is said."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_assets.cli.json_output import json_text
from spark_jobs.configuration import MergeEngine, Table
from spark_jobs.errors import SlotError
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import sync
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.shown_version import shown_version
from spark_jobs.verify.table_verified import Difference, DifferingRow, KeyValue, RowCounts, TableVerified
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.background import in_background
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from typing import LiteralString

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_ROUNDS = int(os.environ.get("VERIFY_ROUNDS", "2"))
_ROWS = int(os.environ.get("VERIFY_ROWS", "40"))
KINDS, EMPTY = QualifiedName("public", "kinds"), QualifiedName("public", "empty")


@pytest.fixture(params=["auto", at_night("spark")])
def engine(request: pytest.FixtureRequest) -> MergeEngine:
    """With ``auto``, small tables are compared without Spark unless something differs."""
    chosen: MergeEngine = request.param
    return chosen


def followed(spark: SparkSession, database: Database, folder: Path, engine: MergeEngine, *tables: str) -> Followed:
    """The tables are there, and followed."""
    pipeline = pipeline_of(database, folder / "lake", *tables, engine=engine)
    assert sync(pipeline, lambda: spark).errors == ()
    return Followed(spark, database, pipeline, tuple(map(QualifiedName.parse, tables)))


def verified(
    lake: Followed, how: Thoroughness | None = None, *, meanwhile: Callable[[], object] | None = None
) -> dict[str, TableVerified]:
    """``meanwhile`` happens when the snapshot is exported, the lake is brought to it, and nothing is compared yet."""
    left, lock = [meanwhile] if meanwhile else [], threading.Lock()

    def first_meanwhile(*of: Any) -> int:
        with lock:
            if left:
                left.pop()()
        return shown_version(*of)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spark_jobs.verify.compare_table.shown_version", first_meanwhile)
        report = verify(lake.pipeline, lambda: lake.spark, how=how)
    assert not left, "nothing was compared"
    return {table.name.relname: table for table in report.tables}


def verdicts(tables: dict[str, TableVerified]) -> dict[str, str]:
    return {name: table.verdict for name, table in tables.items()}


def differing(difference: Difference, number: int, *columns: str, part: str = "x  ") -> DifferingRow:
    return DifferingRow(difference, (KeyValue("part", part), KeyValue("id", str(number))), columns)


def test_each_planted_difference_is_named_by_its_key(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine
) -> None:
    database.execute(
        "CREATE TABLE kinds (part char(3), id int, note text, ratio float8, half float4, price numeric(10,2),"
        ' doc jsonb, bytes bytea, at timestamptz, "a.b ""c""" text, PRIMARY KEY (part, id))',
        "INSERT INTO kinds SELECT 'x', g, 'secret ' || g, g / 7.0, g / 7.0, g, '{}', '\\x00ff', now(), 'n'"
        f" FROM generate_series(1, {_ROWS}) g",
        "UPDATE kinds SET note = '' WHERE id IN (4, 5)",
        "UPDATE kinds SET ratio = 'NaN', half = 'NaN' WHERE id IN (6, 7)",
        "UPDATE kinds SET ratio = '-0', half = '-0' WHERE id IN (8, 9)",
        "UPDATE kinds SET ratio = '-Infinity', note = NULL WHERE id = 10",
        "CREATE TABLE empty (id int PRIMARY KEY, note text)",
    )
    lake = followed(spark, database, tmp_path, engine, "public.kinds", "public.empty")
    for quick in (False, True):
        equal = verified(lake, Thoroughness(quick=quick))
        assert verdicts(equal) == {"kinds": "equal", "empty": "equal"}
        assert (equal["kinds"].counts, equal["empty"].counts) == (RowCounts(_ROWS, _ROWS), RowCounts())

    plant_differences(lake)
    rows = (
        differing("extra", 13, part="x"),
        differing("missing", 1),
        differing("extra", 3),
        differing("changed", 4, "note"),
        differing("changed", 6, "ratio", "half"),
        differing("changed", 8, "ratio", "half"),
        differing("changed", 10, "note", 'a.b "c"'),
        differing("changed", 11, "price", "doc", "bytes"),
        differing("changed", 12, "at"),
        differing("missing", 13),
        differing("extra", _ROWS + 61),
    )
    for how in (Thoroughness(most=100), Thoroughness(quick=True, most=2)):
        told = verified(lake, how)
        assert told["kinds"].rows == rows[: how.most]
        assert told["kinds"].counts == RowCounts(_ROWS, _ROWS + 1, missing=2, extra=3, changed=6)
        assert (told["empty"].counts, told["empty"].verdict) == (RowCounts(0, 1, extra=1), "different")
        assert "secret" not in json_text(told["kinds"]) + json_text(told["empty"])
    sample = verified(lake, Thoroughness(sample=1, most=0))
    assert sample["kinds"].counts == RowCounts(_ROWS, _ROWS - 1, missing=2, extra=1, changed=6), (
        "what only the lake has is left"
    )
    assert (sample["kinds"].rows, sample["empty"].verdict) == ((), "equal")


def plant_differences(lake: Followed) -> None:
    """Behind the pipeline's back, in the Delta tables."""
    kinds, empty = (f"delta.`{lake.pipeline.lake.table(name)}`" for name in (KINDS, EMPTY))
    columns = 'note, ratio, half, price, doc, bytes, at, `a.b "c"`'
    for statement in (
        f"DELETE FROM {kinds} WHERE id = 1",
        f"INSERT INTO {kinds} SELECT part, {_ROWS + 61}, {columns} FROM {kinds} WHERE id = 2",
        f"INSERT INTO {kinds} SELECT * FROM {kinds} WHERE id = 3",
        (
            f"UPDATE {kinds} SET note = CASE id WHEN 4 THEN NULL WHEN 10 THEN '' ELSE note END,"
            " ratio = CASE id WHEN 6 THEN 1D WHEN 8 THEN 0D ELSE ratio END,"
            " half = CASE id WHEN 6 THEN NULL WHEN 8 THEN 0F ELSE half END,"
            " price = CASE id WHEN 11 THEN price + 0.01 ELSE price END,"
            " doc = CASE id WHEN 11 THEN '{ }' ELSE doc END, bytes = CASE id WHEN 11 THEN X'00FE' ELSE bytes END,"
            " at = CASE id WHEN 12 THEN at + INTERVAL 1 MICROSECOND ELSE at END,"
            ' `a.b "c"` = CASE id WHEN 10 THEN NULL ELSE `a.b "c"` END,'
            " part = CASE id WHEN 13 THEN 'x' ELSE part END"  # was padded
        ),
        f"INSERT INTO {empty} VALUES (1, 'secret of the lake')",
    ):
        lake.spark.sql(statement)


def test_current_rows_of_each_mode_without_spark(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    modes: dict[str, Mode] = {"mirrored": "mirror", "softly": "soft_delete", "versions": "history"}
    for name in modes:
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {name} SELECT g, 'v' FROM generate_series(1, 20) g",
        )
    made = pipeline_of(database, tmp_path / "lake", *(f"public.{name}" for name in modes))
    pipeline = replace(made, tables=tuple(Table(QualifiedName("public", n), mode=mode) for n, mode in modes.items()))
    assert sync(pipeline, lambda: spark).errors == ()
    for name in modes:
        database.execute(f"DELETE FROM {name} WHERE id < 4", f"UPDATE {name} SET v = 'new' WHERE id < 8")
    assert sync(pipeline, lambda: spark).errors == ()

    tables = verify(pipeline, no_spark).tables
    assert {(table.verdict, table.counts) for table in tables} == {("equal", RowCounts(17, 17))}
    spark.sql(f"UPDATE delta.`{tmp_path}/lake/tables/public/versions` SET v = 'x' WHERE v = 'new' AND id = 5")
    told = {table.name.relname: table.counts.changed for table in verify(pipeline, lambda: spark).tables}
    assert told == {"mirrored": 0, "softly": 0, "versions": 1}


def test_what_happens_meanwhile_is_no_difference(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine
) -> None:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, status text)",
        "CREATE TABLE idle (id int PRIMARY KEY)",
        "INSERT INTO orders SELECT g, 'new' FROM generate_series(1, 50) g",
        "INSERT INTO idle VALUES (1)",
    )
    lake = followed(spark, database, tmp_path, engine, "public.orders", "public.idle")

    def changed_and_followed() -> None:
        database.execute("DELETE FROM orders WHERE id < 10", "INSERT INTO orders VALUES (100, 'later')")
        assert sync(lake.pipeline, lambda: spark).errors == ()

    equal = verified(lake, meanwhile=changed_and_followed)
    assert verdicts(equal) == {"orders": "equal", "idle": "equal"}
    assert equal["orders"].counts.source_rows == 50
    lake.assert_equal()

    # the version of then is gone with the new snapshot, so another LSN is taken
    later = verified(lake, meanwhile=lambda: snapshot(Run(lake.pipeline, lambda: spark)))
    assert verdicts(later) == {"orders": "equal", "idle": "equal"}
    assert later["orders"].counts.source_rows == 42

    # an old snapshot no longer sees the rows of a table that was truncated since: nothing can be said
    emptied = verified(lake, meanwhile=lambda: database.execute("TRUNCATE orders"))
    assert verdicts(emptied) == {"orders": "not compared", "idle": "equal"}
    assert "was rewritten by DDL" in str(emptied["orders"].error)
    assert sync(lake.pipeline, lambda: spark).errors == ()
    dropped = verified(lake, meanwhile=lambda: database.execute("DROP TABLE idle"))
    assert verdicts(dropped) == {"orders": "equal", "idle": "not compared"}


def test_a_table_that_cannot_be_brought_there_is_not_compared(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute(
        *(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)" for table in ("good", "altered", "fresh")),
        "INSERT INTO good VALUES (1, 'a')",
    )
    lake = followed(spark, database, tmp_path, "spark", "public.good", "public.altered")
    more = pipeline_of(database, tmp_path / "lake", "public.good", "public.altered", "public.fresh")
    lake = replace(lake, pipeline=replace(more, on_rewrite="error"))
    database.execute("ALTER TABLE altered ALTER COLUMN note TYPE int USING 1", "UPDATE good SET note = 'b'")
    tables = verified(lake)
    assert verdicts(tables) == {"good": "equal", "altered": "not compared", "fresh": "not compared"}
    assert "has no snapshot yet" in str(tables["fresh"].error)
    assert [line.split()[0] for line in map(str, filter(None, (t.problem for t in tables.values())))] == [
        "public.altered",
        "public.fresh",
    ]


def test_of_a_table_that_can_never_be_read_again_it_says_what_sync_says(database: Database, tmp_path: Path) -> None:
    """A hint that ``sync`` re-snapshots a table would send its reader in a circle."""
    tables = {"keyless": "DROP CONSTRAINT keyless_pkey", "hidden": "SET UNLOGGED"}
    database.execute(*(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)" for table in (*tables, "good")))
    pipeline = pipeline_of(database, tmp_path / "lake")
    kept = tuple(Table(QualifiedName("public", table), "history") for table in (*tables, "good"))
    pipeline = replace(pipeline, tables=kept)
    assert sync(pipeline, no_spark).errors == ()
    database.execute(f'ALTER PUBLICATION "{database.name}" DROP TABLE hidden')
    database.execute(*(f"ALTER TABLE {table} {ddl}" for table, ddl in tables.items()))
    verified = {table.name.relname: table.error for table in verify(pipeline, no_spark).tables}
    said = sync(pipeline, no_spark).errors
    assert verified.pop("good") is None
    assert {name: str(error) for name, error in verified.items()} == {
        name: next(str(error) for error in said if f"public.{name}" in error.what) for name in tables
    }
    assert "give it a primary key" in str(verified["keyless"])


def test_no_false_alarm_under_load(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine
) -> None:
    database.execute(
        "CREATE TABLE moves (id int PRIMARY KEY, note text, ratio float8)",
        "CREATE TABLE pairs (a int, b text, n bigint, PRIMARY KEY (b, a))",
        "INSERT INTO moves SELECT g, repeat('x', g), g / 7.0 FROM generate_series(1, 2000) g",
        "INSERT INTO pairs SELECT g, g::text, 0 FROM generate_series(1, 200) g",
    )
    lake = followed(spark, database, tmp_path, engine, "public.moves", "public.pairs")
    with in_background(write(database, MOVES), write(database, PAIRS), pause=0.03):
        alone = [verdicts(verified(lake, Thoroughness(quick=bool(number % 2)))) for number in range(_ROUNDS)]
        assert alone == [{"moves": "equal", "pairs": "equal"}] * _ROUNDS
        with in_background(follow(lake)):
            beside = [verdicts(verified(lake)) for _ in range(_ROUNDS // 2)]
    # a table that both would write at one moment is left out
    assert not any("different" in tables.values() for tables in beside), beside
    if _ROUNDS > 10:
        assert any(tables == {"moves": "equal", "pairs": "equal"} for tables in beside), beside


MOVES = (
    (
        "INSERT INTO moves SELECT 10000 + (random() * 1e8)::int + n, 'new', random() FROM generate_series(1, 20) n"
        " ON CONFLICT DO NOTHING"
    ),
    "UPDATE moves SET ratio = -ratio, note = left(note, 5) WHERE id % 97 = (random() * 96)::int",
    (
        "UPDATE moves m SET id = -id WHERE id % 89 = (random() * 88)::int"
        " AND NOT EXISTS (SELECT FROM moves o WHERE o.id = -m.id)"
    ),
    "DELETE FROM moves WHERE id % 211 = (random() * 210)::int",
)
PAIRS = (
    (
        "BEGIN; UPDATE pairs SET n = n + 1 WHERE a % 2 = 0; SAVEPOINT s; DELETE FROM pairs WHERE a % 5 = 0;"
        " ROLLBACK TO s; UPDATE pairs SET n = n + 1 WHERE a % 3 = 0; COMMIT"
    ),
    "UPDATE pairs SET b = b || 'x' WHERE a % 7 = 0 AND length(b) < 50",
)


def write(database: Database, statements: tuple[LiteralString, ...]) -> Generator[None]:
    """Again and again."""
    with database.connect() as connection:
        while True:
            for statement in statements:
                connection.execute(statement)
            yield


def follow(lake: Followed) -> Generator[None]:
    """Another one syncs the same tables, again and again."""
    while True:
        with suppress(SlotError):  # the other one is capturing
            sync(lake.pipeline, lambda: lake.spark)
        yield
