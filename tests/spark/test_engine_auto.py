"""``merge: {engine: auto}``: most changes without Spark. The source is the oracle, Spark reads."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from psycopg import sql

from spark_jobs.apply import apply_tables as applying
from spark_jobs.apply.apply_tables import apply_tables
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.apply.table_range import TableRange
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import Pipeline, Table, WindowLimits
from spark_jobs.errors import OvertakenError
from spark_jobs.options.table_mode import Mode
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify
from spark_jobs.writers.net_source import NetSource
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.table_writer import Written, WrittenTable, write_net
from tests.at_night import at_night
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database
from tests.spark.crash_here import Crash, crash
from tests.spark.followed_pipeline import Followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# table → the type of its key, and the key of row number {0}
KEYS = {
    "by_int": ("int", "{0}"),
    "by_small": ("smallint", "{0}"),
    "by_big": ("bigint", "{0} * 4000000000"),
    "by_text": ("text", "'Grüße ' || {0}"),
    "by_char": ("char(9)", "'c' || {0}"),
    "by_uuid": ("uuid", "lpad({0}::text, 32, '0')::uuid"),
    "by_numeric": ("numeric(30,5)", "{0} + 0.00001"),
    "by_free": ("numeric", "{0} + 0.10"),
    "by_date": ("date", "DATE '2024-01-01' + {0}"),
    "by_time": ("timestamp", "TIMESTAMP '1582-10-04 12:00' + {0} * interval '1 day'"),
    "by_instant": ("timestamptz", "TIMESTAMPTZ '2024-03-31 00:59:59.999999+00' + {0} * interval '1 hour'"),
    "by_bytes": ("bytea", "decode(lpad(to_hex({0}), 8, '0'), 'hex')"),
    "by_jsonb": ("jsonb", "jsonb_build_object('k', {0})"),
    "by_double": ("float8", "CASE {0} WHEN 1 THEN 'NaN'::float8 WHEN 2 THEN '-0' ELSE {0} END"),
}
COLUMNS = {
    "a b": "float8",
    "we`ird": "float4",
    'quo"ted': "numeric(38,4)",
    "dot.ted": "timestamptz",
    "select": "timestamp",
    "UPPER": "text",
    "s": "bytea",
    "op": "date",
    "v0": "bool",
    "t": "json",
    "ß": "int8",
    "n": "numeric",
}
EXTREMES = (
    ("'NaN'", "'Infinity'", "9999999999999999999999999999999999.9999", "'9999-12-31 23:59:59.999999+00'"),
    ("'-0'", "'-0'", "-9999999999999999999999999999999999.9999", "'0001-01-01 00:00:00+00'"),
    ("1e-308", "3e38", "0.0001", "now()"),
    ("NULL", "NULL", "NULL", "NULL"),
)


def made(name: str, key_type: str, key: str) -> Iterator[str]:
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(type_)) for column, type_ in COLUMNS.items()
    )
    yield f'CREATE TABLE {name} ("the key" {key_type}, {columns.as_string()}, PRIMARY KEY ("the key"))'
    yield f'ALTER TABLE {name} ALTER "UPPER" SET STORAGE EXTERNAL, ALTER s SET STORAGE EXTERNAL'
    yield f'INSERT INTO {name} ("the key") SELECT {key.format("g")} FROM generate_series(1, 20) g'


def random_change(chance: random.Random, name: str, key: str) -> str:
    row, other = (key.format(f"({chance.randint(1, 30)})") for _ in range(2))
    real, small, decimal, instant = chance.choice(EXTREMES)
    values = (
        f"{real}, {small}, {decimal}, {instant}, {instant.replace('+00', '')},"
        f" {chance.choice(('NULL', repeated('é', chance), chr(39) * 2))},"
        f" decode(repeat('00ff', {length(chance)}), 'hex'), '0001-01-01',"
        f" {chance.choice(('true', 'false', 'NULL'))}, '[1,  2]', {chance.randint(-9, 9)}, 1.50"
    )
    free = f'AND NOT EXISTS (SELECT FROM {name} WHERE "the key" = {other})'
    return chance.choice(
        (
            f"INSERT INTO {name} VALUES ({row}, {values}) ON CONFLICT DO NOTHING",
            f'UPDATE {name} SET "UPPER" = {repeated("z", chance)}, "ß" = 1 - "ß" WHERE "the key" = {row}',
            f'UPDATE {name} SET "ß" = 2 - "ß", t = NULL WHERE "the key" = {row}',
            f'DELETE FROM {name} WHERE "the key" = {row}',
            f'UPDATE {name} SET "the key" = {other} WHERE "the key" = {row} {free}',
        )
    )


def repeated(letter: str, chance: random.Random) -> str:
    return f"repeat('{letter}', {length(chance)})"


def length(chance: random.Random) -> int:
    """Some values are stored out of line, and are not sent unless they change."""
    return chance.choice((0, 1, 40, 3000))


def auto(database: Database, lake: Path, *tables: str) -> Pipeline:
    return pipeline_of(database, lake, *tables)


def synced(pipeline: Pipeline, spark: SparkSession | None = None) -> SyncReport:
    """Without ``spark``, none may be asked for. What the report says was written is what the tables have."""
    report = sync(pipeline, no_spark if spark is None else lambda: spark)
    assert report.errors == ()
    said = {table.name: table.delta_version for table in report.tables if table.delta_version is not None}
    assert said == {name: DeltaTable(pipeline.lake.table(name)).version() for name in said}
    return report


def assert_equal(spark: SparkSession, pipeline: Pipeline, *names: str) -> None:
    compared = compare(spark, pipeline, tuple(QualifiedName("public", name) for name in names), by_spark=True)
    assert [str(table) for table in compared if not table.equal] == []


# as if every net change were much of its table
REWRITTEN = WriteLimits(rewritten_rows=0, rewritten_share=0.0, streamed_share=0.0)


@pytest.mark.parametrize("strategy", ["merge", at_night("rewrite")])
def test_keys_and_values_of_every_type(spark: SparkSession, database: Database, tmp_path: Path, strategy: str) -> None:
    for name, (key_type, key) in KEYS.items():
        database.execute(*made(name, key_type, key))
    pipeline = auto(database, tmp_path / "lake", *(f"public.{name}" for name in KEYS))
    pipeline = replace(pipeline, writes=REWRITTEN) if strategy == "rewrite" else pipeline
    synced(pipeline)
    chance = random.Random(14)  # noqa: S311 - no secret
    for _ in range(2):
        for name, (_, key) in KEYS.items():
            database.execute(*(random_change(chance, name, key) for _ in range(18)))
        strategies = {applied.name.relname: applied.strategy for applied in synced(pipeline).tables}
        assert strategies == dict.fromkeys(KEYS, strategy)
    assert_equal(spark, pipeline, *KEYS)
    assert [table.verdict for table in verify(pipeline, no_spark).tables] == ["equal"] * len(KEYS)


def _limited(followed: Followed, limits: WriteLimits) -> Followed:
    return replace(followed, pipeline=replace(followed.pipeline, writes=limits))


@pytest.fixture
def followed(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text, doc text, amount numeric(38,4), x float8)",
        "ALTER TABLE item ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO item SELECT g, 'v' || g, repeat('d', 3000), g, g FROM generate_series(1, 20) g",
    )
    pipeline = auto(database, tmp_path / "lake", "public.item")
    synced(pipeline, spark)
    return Followed(spark, database, pipeline, (QualifiedName("public", "item"),))


def test_a_sync_that_needs_no_spark_asks_for_none(followed: Followed) -> None:
    followed.database.execute("INSERT INTO item VALUES (21, 'new', 'd', 1, 1)", "DELETE FROM item WHERE id < 4")
    (applied,) = synced(followed.pipeline).tables
    assert (applied.engine, applied.rows_written, applied.changes.deletes) == ("deltalake", 4, 3)
    assert applied.strategy == "merge"
    assert applied.state is not None
    assert applied.state.version == applied.delta_version
    assert_equal(followed.spark, followed.pipeline, "item")
    # nothing of it is written twice, and Spark goes on from there
    assert [again.outcome for again in synced(followed.pipeline).tables] == ["nothing to apply"]
    followed.database.execute("UPDATE item SET v = 'by Spark' WHERE id > 15")
    (applied,) = synced(replace(followed.pipeline, merge_engine="spark"), followed.spark).tables
    assert applied.engine == "spark"
    assert_equal(followed.spark, followed.pipeline, "item")


@pytest.mark.parametrize(
    "statements",
    [
        ("TRUNCATE item", "INSERT INTO item VALUES (1, 'after', 'd', 1, 1)"),
        ("ALTER TABLE item ADD w int DEFAULT 5, ADD at timestamp", "UPDATE item SET w = 6, doc = '' WHERE id = 2"),
        (
            'ALTER TABLE item RENAME v TO "w (x)"',
            "ALTER TABLE item RENAME doc TO v",
            "ALTER TABLE item DROP amount, ADD amount text, ADD t timestamp",
            "UPDATE item SET amount = 'new', t = '2024-01-01' WHERE id = 3",
        ),
    ],
    ids=["truncated", "columns with values", "columns by their names"],
)
def test_spark_goes_on_from_what_needed_none(followed: Followed, statements: tuple[str, ...]) -> None:
    followed.database.execute(*statements)
    (applied,) = synced(followed.pipeline).tables
    assert applied.engine == "deltalake"
    assert_equal(followed.spark, followed.pipeline, "item")
    followed.database.execute("ALTER TABLE item ADD z int DEFAULT 7, DROP x", "UPDATE item SET z = 8 WHERE id = 1")
    synced(followed.pipeline)
    assert_equal(followed.spark, followed.pipeline, "item")
    followed.database.execute("ALTER TABLE item RENAME z TO y", "UPDATE item SET y = 9 WHERE id = 1")
    synced(replace(followed.pipeline, merge_engine="spark"), followed.spark)
    assert_equal(followed.spark, followed.pipeline, "item")


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE item SET v = 'the document stays' WHERE id = 3", "INSERT INTO item VALUES (21, 'new', NULL, 1, 1)"),
        ("UPDATE item SET id = 100 WHERE id = 3", "UPDATE item SET v = 'twice' WHERE id = 100"),
        (
            "UPDATE item SET id = -3 WHERE id = 3",
            "UPDATE item SET id = 3 WHERE id = 4",
            "DELETE FROM item WHERE id = 5",
        ),
        ("UPDATE item SET doc = NULL WHERE id = 3", "UPDATE item SET v = 'one of two' WHERE id IN (3, 4)"),
    ],
    ids=["stays", "moves with its row", "moves into another row's place", "beside one that is sent"],
)
def test_values_that_are_not_sent_are_taken_from_the_table(followed: Followed, statements: tuple[str, ...]) -> None:
    followed.database.execute("UPDATE item SET doc = id || repeat('d', 3000)")
    synced(followed.pipeline)
    followed.database.execute(*statements)
    (applied,) = synced(followed.pipeline).tables
    assert (applied.engine, applied.strategy) == ("deltalake", "merge")
    assert_equal(followed.spark, followed.pipeline, "item")


def test_a_value_that_is_not_sent_and_not_in_the_table_stops_it(followed: Followed) -> None:
    followed.database.execute("UPDATE item SET v = 'the document stays' WHERE id = 3")
    DeltaTable(followed.pipeline.lake.table(followed.names[0])).delete("id = 3")
    (error,) = sync(followed.pipeline, lambda: followed.spark).errors
    assert "a change needs a row that the table does not have" in str(error)


def test_a_table_of_large_files_is_appended_to_and_left_to_spark_otherwise(followed: Followed) -> None:
    followed = _limited(followed, WriteLimits(small_bytes=0))
    followed.database.execute("INSERT INTO item VALUES (21, 'new', 'd', 1, 1)")
    assert [applied.engine for applied in synced(followed.pipeline).tables] == ["deltalake"]
    followed.database.execute("DELETE FROM item WHERE id = 7")
    assert [applied.engine for applied in synced(followed.pipeline, followed.spark).tables] == ["spark"]
    followed.database.execute("INSERT INTO item VALUES (22, 'new', 'd', 1, 1)")
    assert [applied.engine for applied in synced(followed.pipeline).tables] == ["deltalake"]
    assert_equal(followed.spark, followed.pipeline, "item")


@pytest.mark.parametrize("strategy", ["rewrite", "merge"])
def test_files_that_spark_has_written(spark: SparkSession, database: Database, tmp_path: Path, strategy: str) -> None:
    """With times before 1582 and after 2262, and for a rewrite with deleted rows in them."""
    chance, (key_type, key) = random.Random(3), KEYS["by_time"]  # noqa: S311 - no secret
    database.execute(*made("by_time", key_type, key))
    pipeline = auto(database, tmp_path / "lake", "public.by_time")
    synced(pipeline)
    vectors = strategy == "rewrite"
    pipeline = replace(pipeline, writes=REWRITTEN) if vectors else pipeline
    limits = WriteLimits(whole_files_bytes=-1) if vectors else WriteLimits()
    elsewhere = replace(pipeline, merge_engine="spark", writes=limits)
    for _ in range(2):
        database.execute(*(random_change(chance, "by_time", key) for _ in range(12)))
        assert [applied.strategy for applied in synced(elsewhere, spark).tables] == ["merge"]
    marked = DeltaTable(pipeline.lake.table(QualifiedName("public", "by_time"))).deletion_vectors()
    assert (pa.table(marked).num_rows > 0) is vectors
    database.execute(*(random_change(chance, "by_time", key) for _ in range(12)))
    (applied,) = synced(pipeline).tables
    assert (applied.engine, applied.strategy) == ("deltalake", strategy)
    assert_equal(spark, pipeline, "by_time")
    database.execute("DELETE FROM by_time")
    synced(pipeline)
    assert_equal(spark, pipeline, "by_time")


def test_much_of_a_larger_table_is_written_without_spark(followed: Followed) -> None:
    limits = WriteLimits(small_bytes=0, rewritten_rows=10_000)
    followed = _limited(followed, limits)
    followed.database.execute("INSERT INTO item SELECT g, 'v', 'd', g, g FROM generate_series(101, 30100) g")
    assert [applied.engine for applied in synced(followed.pipeline).tables] == ["deltalake"]
    followed.database.execute(
        "UPDATE item SET v = 'w', doc = id::text WHERE id % 4 <> 0",
        "DELETE FROM item WHERE id % 10 = 0",
        "INSERT INTO item SELECT g, 'new', 'd', g, 'NaN' FROM generate_series(40001, 42000) g",
    )
    (applied,) = synced(followed.pipeline).tables
    assert (applied.engine, applied.strategy, applied.rows_written > 20_000) == ("deltalake", "rewrite", True)
    assert_equal(followed.spark, followed.pipeline, "item")
    # as much by Spark, which reads the rows from files; then nothing of them is left
    followed = _limited(followed, replace(limits, streamed_bytes=0))
    followed.database.execute("UPDATE item SET v = 'x', doc = 'e' WHERE id % 3 <> 0")
    assert [applied.engine for applied in synced(followed.pipeline, followed.spark).tables] == ["spark"]
    assert_equal(followed.spark, followed.pipeline, "item")
    staged = Path(followed.pipeline.lake.path, "_staging")
    assert [left for left in staged.rglob("*") if left.is_file()] == []


@pytest.mark.parametrize("commits", [20, at_night(40)])
def test_many_small_commits_leave_few_files_and_a_log_that_spark_reads(followed: Followed, commits: int) -> None:
    path = followed.pipeline.lake.table(followed.names[0])
    followed.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '7')")
    for number in range(commits):
        followed.database.execute(f"INSERT INTO item VALUES ({100 + number}, 'n', 'd', {number}, 'NaN')")
        synced(followed.pipeline, followed.spark)
    assert len(DeltaTable(path).file_uris()) <= 17
    checkpoint = max(Path(path, "_delta_log").glob("*.checkpoint*.parquet"))
    covered = checkpoint.name.partition(".")[0]
    for commit in Path(path, "_delta_log").glob("*.json"):
        if commit.name < f"{covered}.json":
            commit.unlink()
    assert_equal(followed.spark, followed.pipeline, "item")
    followed.database.execute("DELETE FROM item WHERE id = 100")
    assert [applied.engine for applied in synced(followed.pipeline).tables] == ["deltalake"]
    assert_equal(followed.spark, followed.pipeline, "item")


def test_every_transaction_says_when_it_was_made(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """In each table of the lake, by each way to commit: Spark does not see a transaction without it."""
    database.execute("CREATE TABLE item (id int PRIMARY KEY, v text)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item", messages=True)
    synced(pipeline)
    database.execute("INSERT INTO item VALUES (1, 'v')", "SELECT pg_logical_emit_message(true, 'test', 'a message')")
    synced(pipeline)
    actions = [json.loads(line) for path in Path(pipeline.lake.path).rglob("0*.json") for line in path.open()]
    transactions = [action["txn"] for action in actions if "txn" in action]
    assert len({each["appId"] for each in transactions}) == 4, "of the log, the cuts, the table and the messages"
    assert [each for each in transactions if not each.get("lastUpdated")] == []
    path = pipeline.lake.table(QualifiedName("public", "item"))
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)  # type: ignore[union-attr]
    assert log.snapshot().transactions().size() == 1


def test_files_say_nothing_of_values_that_would_mislead_a_reader(followed: Followed) -> None:
    """By the greatest value of a column a reader skips files: as a double, or without NaN, it would be too small."""
    largest = "9999999999999999999999999999999999.9999"
    followed.database.execute(f"UPDATE item SET amount = {largest}, x = 'NaN', doc = 'd' WHERE id = 7")
    synced(followed.pipeline)
    table = followed.spark.read.format("delta").load(followed.pipeline.lake.table(followed.names[0]))
    for condition in (f"amount = {largest}", f"amount >= {largest}", "x = double('NaN')", "x > 1e300", "id = 7"):
        assert [row["id"] for row in table.where(condition).collect()] == [7], condition
    assert table.where("doc IS NULL").count() == 0
    assert table.where("id > 19").count() == 1


def test_a_writer_that_was_quicker_is_seen(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one commits between the look at the table's state and the commit; and: between opening and commit."""
    followed.database.execute("INSERT INTO item VALUES (21, 'once', 'd', 1, 1)")
    capture(followed.pipeline)
    stale = TableRange(Run(followed.pipeline, no_spark), followed.state(followed.names[0]), followed.markers)
    raced = list[bool]()

    def late(table: WrittenTable, net: NetSource, provenance: Provenance, *, compacts: bool = False) -> Written:
        if not raced:
            raced.append(True)
            followed.apply()
            with pytest.raises(OvertakenError):
                write_net(table, net, provenance, compacts=compacts)
            raise OvertakenError("as before")
        return write_net(table, net, provenance, compacts=compacts)

    monkeypatch.setattr(applying, "write_net", late)
    (applied,) = apply_tables([stale])
    assert (raced, applied.error, applied.outcome) == ([True], None, "already applied")
    assert_equal(followed.spark, followed.pipeline, "item")


def test_what_deltalake_refuses_spark_writes(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    followed.spark.sql(
        f"ALTER TABLE delta.`{followed.pipeline.lake.table(followed.names[0])}`"
        " SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    followed.database.execute("DELETE FROM item WHERE id = 1")
    (applied,) = synced(followed.pipeline, followed.spark).tables
    assert applied.engine == "spark"
    assert_equal(followed.spark, followed.pipeline, "item")


def _in_small_windows(followed: Followed, limits: WriteLimits) -> Followed:
    """Of a kibibyte each; 25 changes are more than the driver decodes at once."""
    limited = _limited(followed, replace(limits, on_driver_rows=25, on_driver_bytes=1 << 20))
    windows = WindowLimits(max_bytes=1 << 10, max_per_run=1000)
    return replace(limited, pipeline=replace(limited.pipeline, windows=windows))


CHANGES = (
    "UPDATE item SET amount = amount + 1, v = v || 'x'",
    "DELETE FROM item WHERE id = 7",
    "INSERT INTO item VALUES (70, 'new', 'd', 1, 1)",
    "UPDATE item SET id = 71 WHERE id = 70",
    "UPDATE item SET x = -x WHERE id < 9",
)


@pytest.mark.parametrize("mode", ["mirror", "soft_delete", "history"])
@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("dies", [False, True], ids=["", "killed between two commits"])
def test_a_range_that_is_not_small_is_applied_a_few_windows_at_a_time(
    spark: SparkSession,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
    *,
    truncates: bool,
    dies: bool,
) -> None:
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, v text, doc text, amount numeric(38,4), x float8)",
        "INSERT INTO item SELECT g, 'v' || g, repeat('d', 3000), g, g FROM generate_series(1, 20) g",
    )
    name = QualifiedName("public", "item")
    pipeline = replace(auto(database, tmp_path / "lake"), tables=(Table(name, mode=mode),))
    synced(pipeline)
    followed = _in_small_windows(Followed(spark, database, pipeline, (name,)), WriteLimits())
    changes = (*CHANGES, "TRUNCATE item", *CHANGES[2:4]) if truncates else CHANGES
    database.execute(*changes)
    if dies:
        with monkeypatch.context() as patched:
            patched.setattr(TableApplied, "after", crash)
            with pytest.raises(Crash):
                synced(followed.pipeline)
    (applied,) = synced(followed.pipeline).tables
    assert applied.engine == "deltalake"
    assert dies or applied.changes.inserts == (2 if truncates else 1)
    commits = DeltaTable(followed.pipeline.lake.table(applied.name)).history()
    assert len(commits) > 2, "the snapshot and one commit"
    followed.assert_equal()
    assert [again.outcome for again in synced(followed.pipeline).tables] == ["nothing to apply"]


@pytest.mark.parametrize(
    ("limits", "changes"),
    [
        (WriteLimits(in_passing_bytes=0), CHANGES),
        (WriteLimits(), (*CHANGES, "ALTER TABLE item ADD w int DEFAULT 5", "UPDATE item SET w = id")),
    ],
    ids=["a large table", "columns that change"],
)
def test_other_ranges_that_are_not_small_are_for_executors(
    followed: Followed, limits: WriteLimits, changes: tuple[str, ...]
) -> None:
    followed = _in_small_windows(followed, limits)
    followed.database.execute(*changes)
    (applied,) = synced(followed.pipeline, followed.spark).tables
    assert applied.engine == "spark"
    assert_equal(followed.spark, followed.pipeline, "item")
