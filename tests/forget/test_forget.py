"""``forget``: no file of the lake has a trace of the row afterwards, and everything goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable, TableFeatures
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pydantic import SecretStr

from spark_jobs.apply.apply import CatchUpReport, apply
from spark_jobs.capture.capture import capture
from spark_jobs.configuration import MergeEngine, Pipeline, Table
from spark_jobs.delta import listed_table, upkeep
from spark_jobs.delta.commit import commit_name
from spark_jobs.errors import CdcError, ConfigurationError, PreconditionError
from spark_jobs.forget import forget as steps
from spark_jobs.forget import forget_rows
from spark_jobs.forget.forget import ForgetReport, forget
from spark_jobs.forget.row_keys import pairs_of
from spark_jobs.forget.traces_left import find_traces
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.logged_changes.changes import changes
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.replay import replay
from spark_jobs.run import Run
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow import arrow_writer
from tests.cli.command import configured
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.forget.canary import CANARY, files_with_canary
from tests.spark.crash_here import Crash, crash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES: tuple[Mode, ...] = ("mirror", "soft_delete", "history", "append")
# in the key, so that Delta's statistics have it; with what a key as an option and a line of CSV have to quote
ERIKA = f'%, "erika"\'@{CANARY}'
KEY = '"mail=%, ""erika""\'@canary"'


def person(mode: str) -> QualifiedName:
    return QualifiedName("public", f"person_{mode}")


def pipeline_in_modes(database: Database, lake: Path, modes: Sequence[Mode] = MODES, **source: Any) -> Pipeline:
    pipeline = pipeline_of(database, lake, **source)
    return replace(pipeline, tables=tuple(Table(person(mode), mode=mode) for mode in modes))


def lived(database: Database, pipeline: Pipeline, spark: Any = no_spark) -> None:
    """A row is inserted, updated without its value out of line, and deleted, beside others, one sync after another."""
    names = [table.name for table in pipeline.tables or ()]
    for name in names:
        database.execute(
            f"CREATE TABLE {name} (mail text PRIMARY KEY, city text, note text)",
            f"INSERT INTO {name} VALUES ('a', 'Ulm', 'stays'), ('z', 'Bonn', 'stays')",
        )
    assert sync(pipeline, spark).errors == ()
    note = f"(SELECT '{CANARY}' || string_agg(md5(n::text), '') FROM generate_series(1, 400) n)"
    for statement in (
        f"INSERT INTO {{}} VALUES ({literal(ERIKA)}, '{CANARY} town', {note}), ('b', 'Kiel', 'stays')",
        f"UPDATE {{}} SET city = '{CANARY} city' WHERE mail = {literal(ERIKA)}",
        f"UPDATE {{}} SET city = 'Hof' WHERE mail IN ('a', {literal(ERIKA)})",
        f"DELETE FROM {{}} WHERE mail = {literal(ERIKA)}",
    ):
        database.execute(*(statement.format(name) for name in names))
        assert sync(pipeline, spark).errors == ()


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def forgotten(pipeline: Pipeline, mode: str, spark: Any = no_spark, *keys: str) -> ForgetReport:
    return forget(pipeline, spark, person(mode), keys or [KEY])


def assert_equal(pipeline: Pipeline, spark: Any = no_spark) -> None:
    assert sync(pipeline, spark).errors == ()
    assert {table.verdict for table in verify(pipeline, spark).tables} == {"equal"}


@pytest.mark.postgres
def test_no_file_has_a_trace_of_a_forgotten_row_and_all_goes_on(database: Database, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    pipeline = pipeline_in_modes(database, lake)
    lived(database, pipeline)
    leave_strays(lake)
    assert {name.split("/")[0] for name in files_with_canary(lake)} == {"tables", "change_log"}
    before = {mode: len(changes(pipeline, person(mode)).read_all()) for mode in MODES}
    found = {mode: forgotten(pipeline, mode) for mode in MODES}
    rows = {"mirror": 0, "soft_delete": 1, "history": 3, "append": 4}
    assert {mode: report.tables[0].rows for mode, report in found.items()} == rows
    assert {report.changes for report in found.values()} == {4}
    assert files_with_canary(lake) == []
    cut = latest_cut(pipeline.lake)
    assert cut is not None
    assert {table.name: table.version for table in cut.tables} == {
        table.name: table.delta_version for report in found.values() for table in report.tables
    }
    for mode in MODES:
        left = changes(pipeline, person(mode)).read_all().to_pylist()
        assert len(left) == before[mode] - 4
        assert {(row["after"] or row["before"])["mail"] for row in left} == {"a", "b"}
    assert_equal(pipeline)
    assert maintain(pipeline, no_spark).errors == ()
    database.execute(*(f"INSERT INTO {person(mode)} VALUES ({literal(ERIKA)}, 'Jena')" for mode in MODES))
    assert_equal(pipeline)
    with pytest.raises(PreconditionError, match="the source still has this row"):
        forgotten(pipeline, "append")


@pytest.mark.postgres
def test_a_writer_that_was_at_work_commits_no_more(database: Database, tmp_path: Path) -> None:
    """What it has written is removed with everything else, so its commit would name files that are gone."""
    pipeline = pipeline_in_modes(database, tmp_path / "lake", ["mirror"])
    lived(database, pipeline)
    folder = Path(pipeline.lake.table(person("mirror")))
    at_work = DeltaTable(str(folder))
    file = folder / f"part-00000-{uuid4()}-c000.zstd.parquet"
    shutil.copy(next(folder.glob("*.parquet")), file)
    began_with = folder / "_delta_log" / commit_name(at_work.version())
    content = began_with.read_bytes()
    forgotten(pipeline, "mirror")
    assert not file.exists()
    assert not began_with.exists()
    began_with.write_bytes(content)  # deltalake reads it again when it commits; Spark does not
    action = AddAction(file.name, 1, {}, 0, True, "{}")
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        at_work.create_write_transaction([action], "append", at_work.schema())
    began_with.unlink()
    assert_equal(pipeline)


@pytest.mark.postgres
def test_what_another_process_lands_meanwhile_is_not_passed_over(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipeline_in_modes(database, tmp_path / "lake", ["mirror"])
    lived(database, pipeline)

    def overtaken(run: Run) -> CatchUpReport:
        report = apply(run)
        database.execute("INSERT INTO person_mirror VALUES ('c', 'Trier')")
        capture(pipeline)
        return report

    monkeypatch.setattr(steps, "apply", overtaken)
    forgotten(pipeline, "mirror")
    assert files_with_canary(tmp_path / "lake") == []
    assert_equal(pipeline)


def leave_strays(lake: Path) -> None:
    """What killed writers leave: files that no version has, one of them damaged and an hour old."""
    for folder in (lake / "change_log", lake / "tables/public/person_mirror"):
        (holding, *_) = [file for file in folder.glob("*.parquet") if CANARY.encode() in file.read_bytes()] or [
            lake / name for name in files_with_canary(lake) if name.startswith(f"{folder.relative_to(lake)}/p")
        ]
        shutil.copy(holding, folder / f"part-00000-{uuid4()}-c000.zstd.parquet")
        damaged = folder / f"part-00000-{uuid4()}-c000.zstd.parquet"
        damaged.write_bytes(f"{CANARY} and nothing that Parquet knows".encode())
        os.utime(damaged, (0, 0))


@pytest.mark.postgres
def test_killed_anywhere_it_is_run_again(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    pipeline = pipeline_in_modes(database, lake, ["history"])
    lived(database, pipeline)
    for module, step in (
        (upkeep, "delete_files"),  # of the log
        (forget_rows, "without_rows"),
        (forget_rows, "record"),
        (forget_rows, "write_checkpoint"),
        (forget_rows, "show_in_latest_cut"),
        (listed_table, "delete_files"),
    ):
        with monkeypatch.context() as killed:
            killed.setattr(module, step, crash)
            with pytest.raises(Crash):
                forgotten(pipeline, "history")
        assert sync(pipeline, no_spark).errors == ()
    assert files_with_canary(lake)
    forgotten(pipeline, "history")
    assert files_with_canary(lake) == []
    assert_equal(pipeline)


SOURCES: dict[str, dict[str, Any]] = {
    "test_decoding": {"plugin": "test_decoding"},
    "binary, two-phase": {"binary": True, "streaming": "on", "two_phase": True},
}
DAY = "'2026-01-02 03:04:05+01'"
LIFE = (
    [f"INSERT INTO person_ddl VALUES (1, {DAY}, '{CANARY}'), (2, {DAY}, 'stays')"],
    [f"UPDATE person_ddl SET mail = '{CANARY} 2' WHERE id = 1"],
    ["ALTER TABLE person_ddl ADD city text", f"UPDATE person_ddl SET city = '{CANARY}' WHERE id = 1"],
    ["TRUNCATE person_ddl", f"INSERT INTO person_ddl VALUES (1, {DAY}, '{CANARY} 3', 'c'), (2, {DAY}, 'x', 'd')"],
    ["ALTER TABLE person_ddl ALTER id TYPE bigint", f"UPDATE person_ddl SET city = '{CANARY} 4' WHERE id = 1"],
    ["UPDATE person_ddl SET city = 'e'", "DELETE FROM person_ddl WHERE id = 1"],
)
# by column mapping, which this process leaves to Spark
MAPPED = (
    [f"INSERT INTO person_ddl VALUES (1, {DAY}, '{CANARY} 5', 'f')", "ALTER TABLE person_ddl RENAME id TO nr"],
    ["ALTER TABLE person_ddl DROP mail", f"UPDATE person_ddl SET city = '{CANARY} 6' WHERE nr = 1"],
    ["DELETE FROM person_ddl WHERE nr = 1"],
)


def altered(
    database: Database, lake: Path, spark: Any, engine: MergeEngine, life: Sequence[Sequence[str]], **source: Any
) -> Pipeline:
    """A table with whole old rows and two key columns that is altered while a row lives, several times."""
    database.execute(
        "CREATE TABLE person_ddl (id int, on_day timestamptz, mail text, PRIMARY KEY (id, on_day))",
        "ALTER TABLE person_ddl REPLICA IDENTITY FULL",
    )
    pipeline = pipeline_of(database, lake, engine=engine, **source)
    pipeline = replace(pipeline, tables=(Table(person("ddl"), mode="history"),))
    assert sync(pipeline, spark).errors == ()
    for statements in life:
        database.execute(*statements)
        assert sync(pipeline, spark).errors == ()
    assert {name.split("/")[0] for name in files_with_canary(lake)} == {"tables", "change_log"}
    return pipeline


@pytest.mark.postgres
@pytest.mark.parametrize("source", SOURCES)
def test_the_log_is_searched_as_it_was_written(database: Database, tmp_path: Path, source: str) -> None:
    """By both plugins, in a table that is altered, truncated and read again in between; in a prepared transaction."""
    lake = tmp_path / "lake"
    pipeline = altered(database, lake, no_spark, "auto", LIFE, **SOURCES[source])
    if "two-phase" in source:
        with database.connect() as connection, connection.transaction():
            connection.execute(f"INSERT INTO person_ddl VALUES (1, {DAY}, '{CANARY} prepared')")
            connection.execute("PREPARE TRANSACTION 'person'")
        database.execute("COMMIT PREPARED 'person'", "DELETE FROM person_ddl WHERE id = 1")
    forgotten(pipeline, "ddl", no_spark, "id=1,on_day=2026-01-02 02:04:05+00")
    assert files_with_canary(lake) == []
    assert_equal(pipeline)


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("engine", "life"), [("auto", (LIFE[0], LIFE[2], LIFE[5], *MAPPED)), ("spark", (*LIFE, *MAPPED))]
)
def test_a_table_of_spark_is_forgotten_by_spark(
    database: Database, tmp_path: Path, spark: SparkSession, engine: MergeEngine, life: Sequence[Sequence[str]]
) -> None:
    """With deletion vectors, renamed and dropped columns, and a checkpoint interval of its owner's."""
    lake = tmp_path / "lake"
    pipeline = altered(database, lake, lambda: spark, engine, life)
    table = f"delta.`{pipeline.lake.table(person('ddl'))}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointInterval' = '7')")
    spark.sql(f"DELETE FROM {table} WHERE nr = 1")
    assert files_with_canary(lake)
    forgotten(pipeline, "ddl", lambda: spark, "nr=1,on_day=2026-01-02 02:04:05+00")
    assert files_with_canary(lake) == []
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    assert properties["delta.checkpointInterval"] == "7"
    assert_equal(pipeline, lambda: spark)


@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.nightly
def test_spark_leaves_no_trace_in_any_mode(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    lake = tmp_path / "lake"
    pipeline = pipeline_in_modes(database, lake, engine="spark")
    lived(database, pipeline, lambda: spark)
    for mode in MODES:
        forgotten(pipeline, mode, lambda: spark)
    assert files_with_canary(lake) == []
    assert_equal(pipeline, lambda: spark)


@pytest.mark.postgres
def test_a_row_that_had_another_key_is_forgotten_under_both(database: Database, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    pipeline = pipeline_in_modes(database, lake, ["history"])
    lived(database, pipeline)
    database.execute(
        f"INSERT INTO person_history VALUES ('{CANARY}, 1', 'x')",
        f"UPDATE person_history SET mail = '{CANARY} 2' WHERE mail = '{CANARY}, 1'",
        f"DELETE FROM person_history WHERE mail = '{CANARY} 2'",
    )
    assert sync(pipeline, no_spark).errors == ()
    held = files_with_canary(lake)
    with pytest.raises(PreconditionError, match="two keys one after the other") as refused:
        forgotten(pipeline, "history", no_spark, f"mail={CANARY} 2")
    assert refused.value.hint == f"add --key '\"mail={CANARY}, 1\"'"
    assert files_with_canary(lake) == held
    forgotten(pipeline, "history", no_spark, f"mail={CANARY} 2", f'"mail={CANARY}, 1"', KEY)
    assert files_with_canary(lake) == []


@pytest.mark.postgres
def test_masked_keys_are_given_in_clear(database: Database, tmp_path: Path) -> None:
    pipeline = pipeline_in_modes(database, tmp_path / "lake", ["append"])
    tables = tuple(replace(table, mask=("mail",)) for table in pipeline.tables or ())
    pipeline = replace(pipeline, tables=tables, mask_salt=SecretStr("salt"))
    mask = pipeline.masks[person("append")]
    lived(database, pipeline)
    assert forgotten(pipeline, "append").tables[0].rows == 4
    assert files_with_canary(tmp_path / "lake") == []
    assert find_traces(pipeline, None, [], [mask.hashed(ERIKA.encode()).decode()]).traces == ()


@pytest.mark.postgres
def test_each_table_of_a_source_table_and_the_records_of_what_did_not_fit(database: Database, tmp_path: Path) -> None:
    """Whichever of them is named. Records of other rows stay."""
    people = QualifiedName("public", "people")
    history = QualifiedName("public", "people__history")
    tables = (Table(people), Table(history, mode="history", shows=people))
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), tables=tables, on_unrepresentable="null")
    database.execute("CREATE TABLE people (mail text PRIMARY KEY, born date)", "INSERT INTO people VALUES ('a', NULL)")
    assert sync(pipeline, no_spark).errors == ()
    database.execute(f"INSERT INTO people VALUES ({literal(ERIKA)}, 'infinity'), ('b', '-infinity')")
    assert sync(pipeline, no_spark).errors == ()
    database.execute(f"DELETE FROM people WHERE mail = {literal(ERIKA)}")
    assert sync(pipeline, no_spark).errors == ()
    folders = {name.split("/")[0] for name in files_with_canary(tmp_path / "lake")}
    assert folders == {"tables", "change_log", "_unrepresentable"}
    traces = find_traces(pipeline, people, [KEY], []).traces
    assert {trace.file.rpartition("/")[0] for trace in traces} >= {
        "tables/public/people",
        "tables/public/people__history",
        "change_log",
        "_unrepresentable",
    }
    report = forget(pipeline, no_spark, history, [KEY])
    assert [(table.name, table.rows) for table in report.tables] == [(people, 0), (history, 1)]
    assert files_with_canary(tmp_path / "lake") == []
    assert find_traces(pipeline, people, [KEY], []).traces == ()
    records = DeltaTable(pipeline.lake.unrepresentable).to_pyarrow_table(columns=["table", "key"]).to_pylist()
    assert sorted(map(str, records)) == [
        str({"table": str(name), "key": '{"mail": "b"}'}) for name in (people, history)
    ]
    assert_equal(pipeline)
    database.execute("ALTER TABLE people RENAME mail TO address", "DELETE FROM people WHERE address = 'b'")
    assert_equal(pipeline)
    under_its_new_name = find_traces(pipeline, people, ["address=b"], []).traces
    assert "_unrepresentable" in {trace.file.partition("/")[0] for trace in under_its_new_name}


@pytest.mark.postgres
def test_records_in_a_file_of_no_table_and_in_a_table_that_others_have_altered(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = replace(pipeline_of(database, tmp_path / "lake", "public.people"), on_unrepresentable="null")
    database.execute("CREATE TABLE people (mail text PRIMARY KEY, born date)", "INSERT INTO people VALUES ('a', NULL)")
    assert sync(pipeline, no_spark).errors == ()
    database.execute(f"INSERT INTO people VALUES ({literal(ERIKA)}, 'infinity')")
    with monkeypatch.context() as killed:
        killed.setattr(arrow_writer, "commit_next", crash)
        with pytest.raises(Crash):
            sync(pipeline, no_spark)
    records = Path(pipeline.lake.unrepresentable)
    assert [file.suffix for file in records.iterdir()] == [".parquet"]
    database.execute(f"DELETE FROM people WHERE mail = {literal(ERIKA)}")
    forget(pipeline, no_spark, QualifiedName("public", "people"), [KEY])
    assert files_with_canary(tmp_path / "lake") == []
    database.execute("INSERT INTO people VALUES ('b', 'infinity')", "DELETE FROM people WHERE mail = 'a'")
    assert sync(pipeline, no_spark).errors == ()
    DeltaTable(records).alter.add_feature(TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)
    database.execute("DELETE FROM people WHERE mail = 'b'")
    forget(pipeline, no_spark, QualifiedName("public", "people"), ["mail=b"])
    assert DeltaTable(records).to_pyarrow_table().num_rows == 0


@pytest.mark.postgres
def test_what_cannot_be_forgotten_is_refused(database: Database, tmp_path: Path) -> None:
    database.execute(
        'CREATE TABLE person_code ("co%de=" varchar(3) PRIMARY KEY)', "INSERT INTO person_code VALUES ('abc')"
    )
    database.execute("CREATE TABLE person_keyless (v text)", "ALTER TABLE person_keyless REPLICA IDENTITY FULL")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.person_code", "public.person_keyless")
    assert sync(pipeline, no_spark).errors == ()
    for table, key, kind, what in (
        ("code", "co%de==abc", PreconditionError, "the source still has this row"),
        ("code", "co%de==abcd", ConfigurationError, "is not of type character varying"),
        ("code", "other=abc", ConfigurationError, "does not name the columns of the key: co%de="),
        ("keyless", "v=abc", PreconditionError, "has no key"),
        ("other", "v=abc", ConfigurationError, "not replicated by this pipeline"),
    ):
        with pytest.raises(CdcError, match=what) as refused:
            forgotten(pipeline, table, no_spark, key)
        assert type(refused.value) is kind
        assert "abc" not in str(refused.value)


@pytest.mark.postgres
def test_the_command_forgets_beside_a_process_that_goes_on(database: Database, tmp_path: Path) -> None:
    """And `verify --erased` finds each trace before, and none after."""
    lake, name = tmp_path / "lake", str(person("history"))
    command = configured(tmp_path, database.dsn, database.name, [{"name": name, "mode": "history"}])
    pipeline = pipeline_in_modes(database, lake, ["history"])  # this process keeps the table open
    lived(database, pipeline)
    of_row = ("--table", name, "--key", KEY)
    cut = LandedWindows.of(pipeline).end
    before = command("verify", "--erased", *of_row, "--json")
    assert before.exit_code == 1
    assert {trace["where"] for trace in before.document["traces"]} == {"mail", "statistics of mail", "data"}
    searched = command("verify", "--erased", "--value", CANARY, "--json").document
    assert {trace["file"] for trace in searched["traces"]} == {*files_with_canary(lake)}
    forgot = command("forget", *of_row, "--json", without_java=True)
    (of_table,) = forgot.document["tables"]
    assert (forgot.exit_code, of_table["rows"], forgot.document["changes"]) == (0, 3, 4)
    after = command("verify", "--erased", *of_row, "--value", CANARY)
    assert (after.exit_code, after.stdout[:8]) == (0, "no trace")
    assert files_with_canary(lake) == []
    database.execute(f"UPDATE {name} SET city = 'Rom'")
    assert_equal(pipeline)
    past = command("cut", "--at", str(Lsn(cut - 1)))
    assert (past.exit_code, f"{name} cannot be read at" in past.problem) == (1, True)
    assert command("cut").exit_code == 0
    again = replay(Run(pipeline, no_spark), LandedWindows.of(pipeline).start, cut)
    assert (again.errors, [table.outcome for table in again.tables]) == ((), ["already applied"])


def test_a_key_is_a_line_of_csv() -> None:
    assert pairs_of("a=1,b=2", ["a", "b"]) == {"a": "1", "b": "2"}
    assert pairs_of('"b=x,y ""z""",a=', ["a", "b"]) == {"a": "", "b": 'x,y "z"'}
    assert pairs_of('a="1', ["a"]) == {"a": '"1'}
    assert pairs_of("a=b=1", ["a", "a=b"][1:]) == {"a=b": "1"}
    for wrong in ("", "1", "a=1", "a=1,b=2,b=3", "a=1,b=2\nc=3", '"a=1,b=2', "a=1,b=2,c=3"):
        with pytest.raises(ConfigurationError, match="columns of the key: a, b"):
            pairs_of(wrong, ["a", "b"])
