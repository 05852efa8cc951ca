"""Types and policies that the configuration chooses for single columns, followed; the server's own casts are the
oracle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.configuration import Pipeline, SparkOptions
from spark_jobs.errors import PreconditionError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.column_options import ColumnOptions, OnUnrepresentable
from spark_jobs.options.table_mode import Mode
from spark_jobs.prepare import prepare
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.sync import sync
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database
from tests.spark.chosen_types import BEYOND, CHANGES, THING, assert_equal, configured, start, types_of
from tests.spark.follow_elsewhere import follow_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


SOURCES: dict[str, dict[str, Any]] = {"text": {}, "binary": {"binary": True}, "lines": {"plugin": "test_decoding"}}


@pytest.mark.parametrize(
    "source", [source if name == "text" else at_night(source) for name, source in SOURCES.items()], ids=SOURCES
)
def test_chosen_types_are_followed(
    spark: SparkSession, database: Database, tmp_path: Path, source: dict[str, Any]
) -> None:
    followed = start(spark, database, tmp_path / "lake", **source)
    assert sync(followed.pipeline, lambda: spark).errors == ()
    schema = dict(spark.read.format("delta").load(followed.pipeline.lake.table(THING)).dtypes)
    assert {"id": "binary", "amount": "decimal(38,10)", "words": "array<string>", "counts": "array<int>"}.items() <= (
        schema.items()
    )
    assert (schema["stamps"], schema["sizes"]) == ("array<timestamp>", "array<decimal(10,2)>")
    assert_equal(followed)
    database.execute(*CHANGES)
    report = sync(followed.pipeline, lambda: spark)
    assert (report.errors, report.snapshots, [table.outcome for table in report.tables]) == ((), (), ["applied"])
    assert_equal(followed)
    if not source:
        (compared,) = compare(spark, followed.pipeline, (THING,))
        assert compared.equal, compared
    database.execute(*BEYOND)
    report = sync(followed.pipeline, lambda: spark)
    assert (report.errors, report.snapshots) == ((), ())
    assert_equal(followed)
    if source.get("plugin") is None:
        for how in (Thoroughness(), Thoroughness(quick=True)):
            (table,) = verify(followed.pipeline, lambda: spark, how=how).tables
            assert (table.error, table.verdict) == (None, "equal")


ELSEWHERE = "tests.spark.chosen_types_elsewhere"


@pytest.mark.nightly
def test_executors_in_processes_of_their_own(
    database: Database, jars_folder: Path, without_our_package: Path, tmp_path: Path
) -> None:
    config = (("spark.executorEnv.PYTHONPATH", str(without_our_package)),)
    options = SparkOptions(master="local-cluster[1,1,1024]", jars=str(jars_folder), config=config)
    follow_elsewhere(options, database, tmp_path, ELSEWHERE)


@pytest.mark.nightly
def test_through_spark_connect(database: Database, connect_server: str, tmp_path: Path) -> None:
    follow_elsewhere(SparkOptions(remote=connect_server), database, tmp_path, ELSEWHERE)


@pytest.mark.nightly
def test_on_executors_too(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    followed = replace(start(spark, database, tmp_path / "lake"), on_driver_bytes=0)
    assert sync(followed.pipeline, lambda: spark).errors == ()
    database.execute(*CHANGES, *BEYOND)
    assert [table.error for table in followed.sync()] == [None]
    assert_equal(followed)


def test_what_does_not_fit_stops_the_table_with_its_name_and_number(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    options = ColumnOptions(types_of({"amount": "decimal(20,2)", "words": "array"}))
    followed = start(spark, database, tmp_path / "lake", options)
    assert sync(followed.pipeline, lambda: spark).errors == ()
    database.execute("UPDATE thing SET amount = 0.001 WHERE tag < '00000003-0000-0000-0000-000000000000'")
    (error,) = sync(followed.pipeline, lambda: spark).errors
    assert "public.thing column amount: NaN, infinity, or more digits than decimal(20,2) has, in 2 of " in str(error)
    database.execute("UPDATE thing SET amount = 0.010 WHERE amount = 0.001", "UPDATE thing SET words = '{{a}}'")
    (error,) = sync(followed.pipeline, lambda: spark).errors
    assert "column amount" in str(error) or "column words: more dimensions than one" in str(error)
    # it goes on by itself when what is configured for these columns says so
    policies: tuple[tuple[str, OnUnrepresentable], ...] = (("amount", "null"), ("words", "null"))
    followed = replace(followed, pipeline=configured(followed.pipeline, replace(options, policies=policies)))
    assert sync(followed.pipeline, lambda: spark).errors == ()
    lake = spark.read.format("delta").load(followed.pipeline.lake.table(THING))
    assert {row["words"] for row in lake.collect()} == {None}
    (expected,) = database.execute("SELECT sum(amount) FROM thing")
    assert lake.agg({"amount": "sum"}).collect()[0][0] == expected[0]


@pytest.mark.parametrize("mode", [at_night("mirror"), "history"])
def test_another_choice_reads_the_table_again(
    spark: SparkSession, database: Database, tmp_path: Path, mode: Mode
) -> None:
    database.execute(
        "CREATE TABLE thing (id int PRIMARY KEY, amount numeric, words text[])",
        "INSERT INTO thing SELECT g, g + 0.5, ARRAY['a', g::text] FROM generate_series(1, 10) g",
    )
    plain = configured(pipeline_of(database, tmp_path / "lake", "public.thing"), ColumnOptions(), mode=mode)
    assert sync(plain, lambda: spark).errors == ()
    # landed under one choice, applied under another
    database.execute("UPDATE thing SET amount = amount + 1 WHERE id < 4", "DELETE FROM thing WHERE id = 10")
    options = ColumnOptions(types_of({"amount": "decimal(12,2)", "words": "array"}))
    steps = {
        "the configured types of columns amount, words were changed": options,
        "the configured type of column words was changed": ColumnOptions(types_of({"amount": "decimal(12,2)"})),
        "the configured type of column amount was changed": ColumnOptions(),
    }
    for reason, chosen in steps.items():
        pipeline = configured(plain, chosen, mode=mode)
        report = sync(pipeline, lambda: spark)
        assert (report.errors, [taken.reason for taken in report.snapshots]) == ((), [reason])
        _assert_current(spark, database, pipeline, chosen)
        database.execute("UPDATE thing SET words = words || 'more'::text, amount = amount + 1 WHERE id IN (2, 3)")
        report = sync(pipeline, lambda: spark)
        assert (report.errors, report.snapshots) == ((), ())
        _assert_current(spark, database, pipeline, chosen)


@pytest.mark.parametrize("mode", ["history", *map(at_night, ("soft_delete", "append"))])
def test_modes_that_keep_what_was(spark: SparkSession, database: Database, tmp_path: Path, mode: Mode) -> None:
    database.execute(
        "CREATE TABLE thing (id int PRIMARY KEY, words text[], ratios float8[], doc jsonb)",
        "ALTER TABLE thing ALTER doc SET STORAGE EXTERNAL",
        "INSERT INTO thing SELECT g, ARRAY['a', NULL, g::text], '{NaN,-0,NULL}',"
        " jsonb_build_object('n', 1.10, 'd', repeat('d', g * 1000)) FROM generate_series(1, 6) g",
    )
    options = ColumnOptions(types_of({"words": "array", "ratios": "array", "doc": "variant"}))
    pipeline = configured(pipeline_of(database, tmp_path / "lake", "public.thing"), options, mode=mode)
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(
        "UPDATE thing SET words = '{b}' WHERE id IN (1, 6)",  # the document of 6 is not sent
        "UPDATE thing SET id = 50 WHERE id = 5",
        "DELETE FROM thing WHERE id = 2",
        "INSERT INTO thing VALUES (7, '{}', NULL, 'null')",
    )
    report = sync(pipeline, lambda: spark)
    assert (report.errors, report.snapshots) == ((), ())
    before = _shown(spark, pipeline)
    if mode != "append":
        assert _live(before) == sorted(database.execute(_LIVE))
    (taken,) = snapshot(Run(pipeline, lambda: spark), (THING,))
    assert taken.error is None
    since = _shown(spark, pipeline)
    if mode == "append":
        assert len(since) == len(before) + 6
    else:  # equal versions stay as they are
        assert (since, _live(since)) == (before, sorted(database.execute(_LIVE)))


_LIVE = "SELECT id, to_json(words)::text, ratios::text, doc->>'d' FROM thing"


def _shown(spark: SparkSession, pipeline: Pipeline) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(pipeline.lake.table(THING))
    kept = [name for name in rows.columns if name.startswith("_") and name != "_not_sent"]
    floats = "if(ratios IS NULL, NULL, '{NaN,-0,NULL}') ratios"
    assert rows.where("ratios IS NOT NULL AND CAST(ratios AS string) <> '[NaN, -0.0, null]'").count() == 0
    shown = rows.selectExpr("id", "to_json(words) words", floats, "doc:d::string d", *kept)
    return sorted((tuple(row) for row in shown.collect()), key=repr)


def _live(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Of history and soft_delete: the last column, or the one before it, is null."""
    return sorted(row[:4] for row in rows if row[-1] is None)


def _assert_current(spark: SparkSession, database: Database, pipeline: Pipeline, options: ColumnOptions) -> None:
    rows = spark.read.format("delta").load(pipeline.lake.table(THING))
    current = rows.where("_valid_to_lsn IS NULL") if "_valid_to_lsn" in rows.columns else rows
    lake = sorted(tuple(row) for row in current.select("id", "amount", "words").collect())
    types = dict(options.types.columns)
    amount = "amount::numeric(12,2)" if "amount" in types else "amount::text"
    words = "words" if "words" in types else "words::text"
    assert lake == sorted(database.execute(f"SELECT id, {amount}, {words} FROM thing"))


@pytest.mark.nightly
def test_as_of_and_rebuilt_with_the_types_of_then(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    followed = start(spark, database, tmp_path / "lake")
    pipeline = followed.pipeline
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(*CHANGES)
    lsn = Lsn.parse(str(database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0]))
    expected = _rows(spark, pipeline.lake.table(THING))
    database.execute("UPDATE thing SET amount = 1, words = '{z}', doc = '{}'")
    assert sync(pipeline, lambda: spark).errors == ()
    first, last = followed.markers[0].window, followed.markers[-1].window
    report = rebuild(Run(pipeline, lambda: spark), first.hi, last.hi, [THING])
    assert (report.errors, [table.outcome for table in report.tables]) == ((), ["rebuilt"])
    assert_equal(followed)
    # the configuration says nothing of types by now: what was then had them
    plain = configured(pipeline, ColumnOptions())
    assert sync(plain, lambda: spark).errors == ()
    table_as_of(Run(plain, lambda: spark), THING, lsn, str(tmp_path / "then"))
    then = _rows(spark, str(tmp_path / "then"))
    assert then.dtypes == expected.dtypes
    assert then.count() == 42
    assert then.where("doc:n IS NOT NULL AND amount IS NOT NULL AND size(words) = 9").count() > 35


def _rows(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("delta").load(path)


def test_ddl_on_a_table_with_chosen_types(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE thing (id int PRIMARY KEY, amount numeric, words text[])",
        "INSERT INTO thing SELECT g, g + 0.5, ARRAY['a', g::text] FROM generate_series(1, 10) g",
    )
    options = ColumnOptions(types_of({"amount": "decimal(12,2)", "words": "array"}))
    pipeline = configured(pipeline_of(database, tmp_path / "lake", "public.thing"), options)
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(
        "UPDATE thing SET amount = 1 WHERE id = 1",
        "ALTER TABLE thing ADD note text DEFAULT 'n'",
        "UPDATE thing SET words = '{b}' WHERE id = 2",
        "ALTER TABLE thing ADD more int[] DEFAULT '{1,2}'",
        "UPDATE thing SET amount = 2.25 WHERE id = 3",
    )
    report = sync(pipeline, lambda: spark)
    assert (report.errors, report.snapshots) == ((), ())
    _assert_current(spark, database, pipeline, options)
    database.execute("ALTER TABLE thing RENAME amount TO total", "UPDATE thing SET total = 7 WHERE id = 4")
    (error,) = sync(pipeline, lambda: spark).errors
    assert "table public.thing has no column amount that is followed, and types: names it" in str(error)
    followed = configured(pipeline, ColumnOptions(types_of({"total": "decimal(12,2)", "words": "array"})))
    report = sync(followed, lambda: spark)
    reason = "the configured types of columns amount, total were changed"
    assert (report.errors, [taken.reason for taken in report.snapshots]) == ((), [reason])
    (table,) = verify(followed, lambda: spark).tables
    assert (table.error, table.verdict) == (None, "equal")
    database.execute("ALTER TABLE thing RENAME total TO amount")
    assert sync(pipeline, lambda: spark).errors == ()
    _assert_current(spark, database, pipeline, options)
    database.execute("ALTER TABLE thing ALTER words TYPE int[] USING '{1}'", "INSERT INTO thing VALUES (11, 1, '{2}')")
    report = sync(pipeline, lambda: spark)
    assert (report.errors, len(report.snapshots)) == ((), 1)
    _assert_current(spark, database, pipeline, options)


REFUSED = {
    "amount: variant": "which cannot be variant as types: says: choose decimal(precision,scale)",
    "qty: array": "has column qty of type integer, which cannot be array as types: says: take it out of types:",
    "qty: decimal(10,2)": "has column qty of type integer, which cannot be decimal(10,2) as types: says",
    "amount: array": "which cannot be array as types: says: choose decimal(precision,scale)",
    "boxes: array": "has column boxes of type box[], which cannot be array",
    "words: binary": "which cannot be binary as types: says: choose array",
    "nothing: array": "has no column nothing that is followed, and types: names it: expected some of id, qty, amount",
    "id: decimal(10,0)": "has id in its key, which keeps its own type, and types: says decimal(10,0)",
}


@pytest.mark.parametrize(("types", "said"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_chosen_is_said_in_one_line(database: Database, tmp_path: Path, types: str, said: str) -> None:

    database.execute("CREATE TABLE thing (id numeric PRIMARY KEY, qty int, amount numeric, words text[], boxes box[])")
    options = ColumnOptions(types_of(dict([types.split(": ")])))
    with pytest.raises(PreconditionError) as refused:
        prepare(configured(pipeline_of(database, tmp_path / "lake", "public.thing"), options))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_without_a_key(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Its decimals may come and go; arrays cannot be told apart there."""
    database.execute(
        "CREATE TABLE thing (amount numeric, words text[])",
        "ALTER TABLE thing REPLICA IDENTITY FULL",
        "INSERT INTO thing VALUES (1.0, '{a}'), (1.00, '{a}'), (2, NULL), (NULL, NULL)",
    )
    made = pipeline_of(database, tmp_path / "lake", "public.thing")
    refused = sync_error(spark, configured(made, ColumnOptions(types_of({"words": "array"}))))
    assert "has no key, so that rows are found by all their values, and words cannot be array then" in refused
    pipeline = configured(made, ColumnOptions(types_of({"amount": "decimal(10,2)"})))
    assert sync(pipeline, lambda: spark).errors == ()
    database.execute(
        "DELETE FROM thing WHERE amount::text = '1.00'",
        "INSERT INTO thing VALUES (2.000, NULL), (3, '{}')",
        "UPDATE thing SET amount = 4 WHERE amount IS NULL",
    )
    report = sync(pipeline, lambda: spark)
    assert (report.errors, report.snapshots) == ((), ())
    lake = sorted(map(tuple, spark.read.format("delta").load(pipeline.lake.table(THING)).collect()), key=repr)
    assert lake == sorted(database.execute("SELECT amount::numeric(10,2), words::text FROM thing"), key=repr)


def sync_error(spark: SparkSession, pipeline: Pipeline) -> str:

    with pytest.raises(PreconditionError) as refused:
        sync(pipeline, lambda: spark)
    return str(refused.value)


def test_json_that_is_no_variant_stops_the_table_without_its_text(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE thing (id int PRIMARY KEY, doc json)", "INSERT INTO thing VALUES (1, '{}')")
    made = pipeline_of(database, tmp_path / "lake", "public.thing")
    pipeline = configured(made, ColumnOptions(types_of({"doc": "variant"})))
    assert sync(pipeline, lambda: spark).errors == ()
    for text in ('{"secret": 1, "secret": 2}', '"secret \\ud800"', "[" * 1200 + '"secret"' + "]" * 1200):
        database.execute(f"UPDATE thing SET doc = '{text}'")
        (error,) = sync(pipeline, lambda: spark).errors
        assert "public.thing" in str(error)
        assert "column doc: a JSON text that a variant cannot hold" in str(error)
        assert "secret" not in str(error)
    database.execute("UPDATE thing SET doc = '[12345678901234567890123456789012345678.9]'")
    (error,) = sync(pipeline, lambda: spark).errors
    assert "column doc: a number with an exponent, or of more than 38 digits, in 1 of 1 values" in str(error)
    database.execute("UPDATE thing SET doc = '{\"good\": 1}'")
    assert sync(pipeline, lambda: spark).errors == ()
    held = spark.read.format("delta").load(pipeline.lake.table(THING)).selectExpr("to_json(doc)").collect()
    assert [row[0] for row in held] == ['{"good":1}']
