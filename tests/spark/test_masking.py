"""``mask:`` of tables: the lake has what pgcrypto makes of the values, and nothing that is written has the values."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from psycopg import sql
from pydantic import SecretStr

from spark_jobs.apply.apply import apply
from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, Table
from spark_jobs.doctor import Verdict, diagnose
from spark_jobs.errors import ConfigurationError, NeedsSnapshotError, SchemaChangeError
from spark_jobs.lake.table_state import table_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.options.table_mode import Mode
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures import row_compare
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

SALT = "saltcanary of 24 letters"
PERSON, EVENT, BADGE, ITEM = (QualifiedName("public", name) for name in ("person", "event", "badge", "item"))
MASKS: Mapping[QualifiedName, tuple[str, ...]] = {
    PERSON: ("email", "phone", "born", "ratio", "tag", "photo", "amount", "doc"),
    EVENT: ("who",),
    BADGE: ("code",),
    ITEM: (),
}
SCHEMA = (
    "CREATE EXTENSION pgcrypto",
    (
        "CREATE TABLE person (id int PRIMARY KEY, email text, phone bigint, born timestamptz, ratio float8,"
        " tag char(12), photo bytea, amount numeric(12,2), doc text, plain text)"
    ),
    "ALTER TABLE person ALTER doc SET STORAGE EXTERNAL",
    "CREATE TABLE event (kind int, who text)",
    "ALTER TABLE event REPLICA IDENTITY FULL",
    "CREATE TABLE badge (code text PRIMARY KEY, n int)",
    "CREATE TABLE item (id int PRIMARY KEY, name text)",
    (
        "INSERT INTO person SELECT g, 'canary ' || g || ' ü', 7912345000 + g, '2001-02-03 04:05:06.7+02', g / 7.0,"
        " 'canary', 'canary'::bytea, g / 3.0, repeat('canary', 2000), 'plain' FROM generate_series(1, 20) g"
    ),
    "INSERT INTO person (id, email) VALUES (99, '')",
    "INSERT INTO event SELECT g % 3, 'canary ' || g % 2 FROM generate_series(1, 20) g",
    "INSERT INTO badge SELECT 'canary ' || g, g FROM generate_series(1, 9) g",
    "INSERT INTO item VALUES (1, 'one')",
)
STEPS: Mapping[str, tuple[str, ...]] = {
    "changes": (
        "UPDATE person SET plain = 'other' WHERE id < 5",  # the documents are not sent
        "UPDATE person SET email = 'canary new', doc = NULL, ratio = 'NaN' WHERE id = 6",
        "UPDATE person SET id = 100, phone = 7912345999 WHERE id = 7",
        "UPDATE person SET born = 'infinity' WHERE id = 99",  # a value that no timestamp of the lake holds
        "DELETE FROM person WHERE id = 8",
        "INSERT INTO person (id, email, phone) VALUES (200, 'canary again', 7912345200)",
        "UPDATE badge SET n = n + 1 WHERE n < 4",
        "UPDATE badge SET code = 'canary moved' WHERE n = 6",
        "DELETE FROM badge WHERE n = 7",
        "UPDATE event SET kind = 7 WHERE kind = 1",
        "DELETE FROM event WHERE ctid = (SELECT min(ctid) FROM event WHERE kind = 2)",
        "INSERT INTO event SELECT * FROM event",
        "UPDATE item SET name = 'two'",
    ),
    "a large transaction, and a prepared one": (
        (
            "INSERT INTO person (id, email, doc) SELECT g, 'canary ' || g, repeat('canary', 20)"
            " FROM generate_series(1000, 3000) g"
        ),
        "BEGIN; UPDATE person SET email = 'canary prepared' WHERE id = 1; PREPARE TRANSACTION 'one'",
        "COMMIT PREPARED 'one'",
    ),
    "a column comes": (
        "ALTER TABLE person ADD added int DEFAULT 5",
        "UPDATE person SET email = 'canary', added = 6 WHERE id = 2",
    ),
    "a column goes": (
        "UPDATE person SET email = 'canary', added = 7 WHERE id = 2",
        "ALTER TABLE person DROP plain",
        "INSERT INTO person (id, email) VALUES (201, 'canary')",
    ),
    "truncated": (
        "INSERT INTO event VALUES (1, 'canary')",
        "TRUNCATE event, badge",
        "INSERT INTO badge VALUES ('canary', 1)",
        "INSERT INTO event VALUES (1, 'canary'), (1, 'canary'), (2, NULL)",
    ),
}


def masking(database: Database, lake: Path, *names: QualifiedName, salt: str = SALT, **source: Any) -> Pipeline:
    """The tables with their masks, those in ``names`` without."""
    made = pipeline_of(database, lake, **source)
    tables = tuple(Table(name, mask=() if name in names else mask) for name, mask in MASKS.items())
    return replace(made, tables=tables, mask_salt=SecretStr(salt))


def by_pgcrypto(database: Database, name: QualifiedName, columns: list[str], masked: tuple[str, ...]) -> Counter[Any]:
    """The source's rows, with what pgcrypto makes of masked columns."""
    of_text = "CASE WHEN {0} IS DISTINCT FROM NULL THEN encode(hmac(concat({0}), {1}, 'sha256'), 'hex') END"
    chosen = [
        (sql.SQL(of_text) if column in masked else sql.SQL("{0}")).format(sql.Identifier(column), sql.Literal(SALT))
        for column in columns
    ]
    query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(chosen), sql.Identifier(name.nspname, name.relname))
    with database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET extra_float_digits = 3")
        return Counter(connection.execute(query).fetchall())


def lake_rows(spark: SparkSession, pipeline: Pipeline, name: QualifiedName) -> tuple[Counter[Any], list[str]]:
    table = row_compare.lake_rows(spark, pipeline.lake.table(name))
    table = table.select([column for column in table.column_names if column != "_not_sent"])
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True)), table.column_names


def assert_masked(spark: SparkSession, database: Database, pipeline: Pipeline) -> None:
    for table in pipeline.tables or ():
        found, columns = lake_rows(spark, pipeline, table.name)
        assert found == by_pgcrypto(database, table.name, columns, table.mask), table.name
        types = dict(spark.read.format("delta").load(pipeline.lake.table(table.name)).dtypes)
        assert {types[column] for column in table.mask} <= {"string"}
    assert all(found.equal for found in row_compare.compare(spark, pipeline, tuple(MASKS)))


def synced(spark: SparkSession, pipeline: Pipeline) -> dict[str, str]:
    """Which tables were read again, and why."""
    report = sync(pipeline, lambda: spark)
    assert report.errors == ()
    return {taken.name.relname: taken.reason for taken in report.snapshots}


def written(folder: Path) -> str:
    """All files' names and bytes, and the values that compression hides."""
    found = []
    for file in (file for file in folder.rglob("*") if file.is_file()):
        found += [str(file), file.read_bytes().decode(errors="replace")]
        if file.suffix == ".parquet":
            found.append(str(pq.ParquetFile(file).read().to_pydict()))
    return "\n".join(found)


def assert_nowhere(folder: Path) -> None:
    text = written(folder)
    assert "plain" in text, "it has looked"
    assert [word for word in ("canary", "7912345", b"canary".hex()) if word in text] == []


@pytest.mark.parametrize("streaming", [at_night("off"), "on"])
def test_each_step(
    spark: SparkSession,
    database: Database,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    streaming: str,
) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "spark_jobs")
    database.execute(*SCHEMA)
    small = f"{database.dsn} options='-c logical_decoding_work_mem=64kB'"
    pipeline = masking(database, tmp_path / "lake", dsn=small, streaming=streaming, two_phase=streaming == "on")
    assert synced(spark, pipeline) == dict.fromkeys(("person", "event", "badge", "item"), "")
    assert_masked(spark, database, pipeline)
    for statements in STEPS.values():
        database.execute(*statements)
        assert synced(spark, pipeline) == {}
        assert_masked(spark, database, pipeline)
    assert verify(pipeline, lambda: spark).problems == ()
    assert_nowhere(tmp_path / "lake")
    said = caplog.text + "".join(capfd.readouterr())
    assert "canary" not in said
    assert "7912345" not in said


def test_masks_come_change_and_go(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Each time the table is read again by itself, on a quiet database too, and what was landed before is not mixed."""
    database.execute(*SCHEMA)
    lake = tmp_path / "lake"
    without = masking(database, lake, *MASKS)
    synced(spark, without)
    database.execute("UPDATE person SET email = 'canary before'", "INSERT INTO badge VALUES ('canary before', 0)")
    capture(without)  # landed as it is, and not applied
    masked = masking(database, lake)
    landed = apply(Run(masked, lambda: spark))
    stopped = {done.name: done.error for done in landed.tables if done.error is not None}
    assert set(stopped) == {PERSON, BADGE}
    assert all(isinstance(error, NeedsSnapshotError) for error in stopped.values())
    assert "its masked columns were changed" in str(stopped[PERSON])
    changed = dict.fromkeys(("person", "event", "badge"), "its masked columns were changed")
    assert synced(spark, masked) == changed
    assert_masked(spark, database, masked)
    database.execute("UPDATE person SET phone = 1 WHERE id = 1")
    assert synced(spark, masked) == {}
    assert_masked(spark, database, masked)
    salted = masking(database, lake, salt="another salt")
    assert synced(spark, salted) == dict.fromkeys(changed, "the salt of its masked columns was changed")
    assert synced(spark, masked) == dict.fromkeys(changed, "the salt of its masked columns was changed")
    assert_masked(spark, database, masked)
    database.execute("UPDATE person SET email = 'canary after'")
    bare = masking(database, lake, PERSON)
    assert synced(spark, bare) == {"person": "its masked columns were changed"}
    assert all(found.equal for found in row_compare.compare(spark, bare, tuple(MASKS)))


def test_a_process_with_another_configuration(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """It lands a window as it is after the masked table's snapshot: that is left out, and the table read again."""
    database.execute(*SCHEMA)
    masked, without = masking(database, tmp_path / "lake"), masking(database, tmp_path / "lake", *MASKS)
    synced(spark, masked)
    database.execute("UPDATE person SET email = 'canary late' WHERE id = 1")
    capture(without)
    (done,) = (done for done in apply(Run(masked, lambda: spark)).tables if done.name == PERSON)
    assert isinstance(done.error, SchemaChangeError)
    assert "canary" not in str(lake_rows(spark, masked, PERSON))
    assert "its masked columns were changed" in synced(spark, masked)["person"]
    assert_masked(spark, database, masked)


def test_a_column_is_renamed_dropped_and_retyped(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(*SCHEMA)
    pipeline = masking(database, tmp_path / "lake")
    synced(spark, pipeline)
    database.execute(
        "UPDATE person SET email = 'canary one' WHERE id = 1",
        "ALTER TABLE person RENAME email TO mail",
        "UPDATE person SET mail = 'canary two' WHERE id = 2",
    )
    with pytest.raises(ConfigurationError, match=r"public\.person has no column email: nothing is read"):
        sync(pipeline, lambda: spark)
    (check,) = (check for check in diagnose(pipeline).checks if check.what == str(PERSON))
    assert (check.verdict, "has no column email" in check.found) == (Verdict.FAIL, True)
    renamed = _with_mask(pipeline, "email", "mail")
    assert synced(spark, renamed) == {}, "followed in place"
    assert_masked(spark, database, renamed)
    (check,) = (check for check in diagnose(renamed).checks if check.what == str(PERSON))
    assert check.verdict is Verdict.OK
    assert "masked (mail, phone" in check.found
    database.execute(
        "ALTER TABLE person ALTER phone TYPE text USING 'canary' || phone",
        "UPDATE person SET phone = 'canary phone' WHERE id = 3",
        "ALTER TABLE person DROP tag",
        "ALTER TABLE person ADD tag text DEFAULT 'canary tag'",
        "INSERT INTO person (id) VALUES (300)",
    )
    assert list(synced(spark, renamed)) == ["person"]
    assert_masked(spark, database, renamed)
    assert_nowhere(tmp_path / "lake")


def _with_mask(pipeline: Pipeline, old: str, new: str) -> Pipeline:
    tables = pipeline.tables or ()
    renamed = tuple(replace(table, mask=tuple(new if name == old else name for name in table.mask)) for table in tables)
    return replace(pipeline, tables=renamed)


@pytest.mark.parametrize("mode", ["history", *map(at_night, ("soft_delete", "append"))])
def test_modes_begin_anew_with_another_mask(
    spark: SparkSession, database: Database, tmp_path: Path, mode: Mode
) -> None:
    """Nothing of what was kept unmasked is kept on."""
    database.execute(*SCHEMA)
    made = pipeline_of(database, tmp_path / "lake")
    plain = replace(made, tables=(Table(PERSON, mode),))
    synced(spark, plain)
    database.execute("UPDATE person SET email = 'canary kept' WHERE id = 1", "DELETE FROM person WHERE id = 2")
    synced(spark, plain)
    assert "canary" in str(lake_rows(spark, plain, PERSON))
    masked = replace(made, tables=(Table(PERSON, mode, mask=MASKS[PERSON]),), mask_salt=SecretStr(SALT))
    assert synced(spark, masked) == {"person": "its masked columns were changed"}
    database.execute(
        "UPDATE person SET email = 'canary kept' WHERE id = 3",
        "UPDATE person SET plain = 'x' WHERE id = 3",
        "DELETE FROM person WHERE id = 4",
    )
    assert synced(spark, masked) == {}
    found, columns = lake_rows(spark, masked, PERSON)
    assert "canary" not in str(found)
    values = {row[columns.index("email")] for row in found} - {None}
    assert all(len(value) == 64 for value in values)
    (known,) = database.execute(f"SELECT encode(hmac('canary kept', '{SALT}', 'sha256'), 'hex')")[0]
    assert known in values
    if mode != "append":
        assert verify(masked, lambda: spark).problems == ()


@pytest.mark.nightly
def test_replayed_rebuilt_and_as_of(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(*SCHEMA)
    plain, pipeline = masking(database, tmp_path / "lake", *MASKS), masking(database, tmp_path / "lake")
    synced(spark, plain)
    database.execute("UPDATE person SET email = 'canary plain' WHERE id = 1")
    synced(spark, plain)
    unmasked = ChangeLog(plain.lake.change_log).markers()[-1].window.hi
    synced(spark, pipeline)
    for statements in (STEPS["changes"], STEPS["a large transaction, and a prepared one"]):
        database.execute(*statements)
        assert synced(spark, pipeline) == {}
    state = table_state(pipeline.lake, PERSON, ChangeLog(pipeline.lake.change_log).markers()[-1].identity)
    assert state is not None
    end = ChangeLog(pipeline.lake.change_log).markers()[-1].window.hi
    report = rebuild(Run(pipeline, lambda: spark), Lsn(int(state.snapshot_lsn) + 1), end, [PERSON])
    assert report.errors == ()
    assert_masked(spark, database, pipeline)
    table_as_of(Run(pipeline, lambda: spark), PERSON, end, str(tmp_path / "then"))
    then = row_compare.lake_rows(spark, str(tmp_path / "then"))
    rows = Counter(zip(*(column.to_pylist() for column in then.columns), strict=True))
    assert rows == by_pgcrypto(database, PERSON, then.column_names, MASKS[PERSON])
    with pytest.raises(SchemaChangeError, match="since then its masked columns were changed"):
        table_as_of(Run(pipeline, lambda: spark), PERSON, unmasked, str(tmp_path / "before"))
    assert not (tmp_path / "before").exists()


@pytest.mark.nightly
def test_beside_columns_of_chosen_types(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE EXTENSION pgcrypto",
        "CREATE TABLE person (id int PRIMARY KEY, email text, amount numeric, tags int[], until date DEFAULT 'today')",
        "INSERT INTO person SELECT g, 'canary ' || g, g + 0.5, ARRAY[g, NULL] FROM generate_series(1, 9) g",
    )
    chosen = {"amount": ChosenType.parse("decimal(38,10)"), "tags": ChosenType.parse("array")}
    options = ColumnOptions(ChosenTypes.of(chosen), (("until", "null"),))
    table = Table(PERSON, options=options, mask=("email",))
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), tables=(table,), mask_salt=SecretStr(SALT))

    def assert_equal(since: Pipeline) -> None:
        (follows,) = since.tables or ()
        found = spark.read.format("delta").load(since.lake.table(PERSON)).select("id", "email").toArrow().to_pylist()
        source = by_pgcrypto(database, PERSON, ["id", "email"], follows.mask)
        assert Counter((row["id"], row["email"]) for row in found) == source
        assert all(done.equal for done in row_compare.compare(spark, since, (PERSON,)))
        (verified,) = verify(since, lambda: spark, (PERSON,)).tables
        assert verified.verdict == "equal"

    synced(spark, pipeline)
    database.execute(
        "UPDATE person SET amount = amount * 3, email = 'canary' WHERE id < 4",
        "INSERT INTO person VALUES (100, 'canary', 1.25, '{}', NULL)",
        "DELETE FROM person WHERE id = 9",
    )
    assert synced(spark, pipeline) == {}
    assert_equal(pipeline)
    into = str(tmp_path / "then")
    end = ChangeLog(pipeline.lake.change_log).checkpoint()
    assert end is not None
    assert table_as_of(Run(pipeline, lambda: spark), PERSON, end.window.hi, into).rows == 9
    # both are changed at once: one snapshot, and both are as they are to be
    other = ColumnOptions(ChosenTypes.of({"amount": chosen["amount"]}), options.policies)
    since = replace(pipeline, tables=(replace(table, options=other, mask=()),))
    assert set(synced(spark, since)) == {"person"}
    assert dict(spark.read.format("delta").load(since.lake.table(PERSON)).dtypes)["tags"] == "string"
    database.execute("UPDATE person SET email = 'seen' WHERE id = 5")
    assert synced(spark, since) == {}
    assert_equal(since)


@pytest.mark.nightly
@pytest.mark.usefixtures("read_by_executors")
def test_large_ranges_on_executors(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    from tests.spark.followed_pipeline import Followed

    database.execute(*SCHEMA)
    pipeline = masking(database, tmp_path / "lake")
    synced(spark, pipeline)
    followed = Followed(spark, database, pipeline, tuple(MASKS), on_driver_bytes=0)
    for statements in STEPS.values():
        database.execute(*statements)
        assert [done.error for done in followed.sync()] == [None] * len(MASKS)
        assert_masked(spark, database, pipeline)
    assert_nowhere(tmp_path / "lake")


def test_a_table_that_is_not_there_stops_all_before_anything_is_made(database: Database, tmp_path: Path) -> None:
    pipeline = masking(database, tmp_path / "lake")
    with pytest.raises(ConfigurationError, match=r"there is no table public\.person, public\.event"):
        prepare(pipeline)
    assert database.execute("SELECT count(*) FROM pg_publication") == [(0,)]
