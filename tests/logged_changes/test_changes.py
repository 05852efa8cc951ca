"""``changes``: every change of a table in order, from the log alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline, Table
from spark_jobs.errors import CdcError, ConfigurationError, GapError, SchemaChangeError
from spark_jobs.logged_changes import plan
from spark_jobs.logged_changes.changes import changes
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.options.table_mask import TableMask
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.pipelines import pipeline_of, prepare_slot
from tests.fixtures.servers import Database
from tests.logged_changes.audited_changes import MADE, TABLES, TRANSACTIONS, assert_as_audited, commit
from tests.spark.audit import Row

pytestmark = pytest.mark.postgres

SOURCES: Mapping[str, dict[str, Any]] = {
    "pgoutput": {},
    "binary": {"binary": True},
    "two-phase, streamed": {"two_phase": True, "streaming": "on"},
    "test_decoding": {"plugin": "test_decoding"},
}


def read(pipeline: Pipeline, table: str, *points: Any, **options: Any) -> list[Row]:
    rows: list[Row] = changes(pipeline, table, *points, **options).read_all().to_pylist()
    return rows


@pytest.fixture
def logged(database: Database, tmp_path: Path) -> Pipeline:
    """Three windows of ``public.item``, each with one insert and one update."""
    database.execute("CREATE TABLE item (id int PRIMARY KEY, v text)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item")
    prepare_slot(pipeline)
    for n in range(1, 4):
        landed(pipeline, database, f"INSERT INTO item VALUES ({n}, 'v{n}')", f"UPDATE item SET v = 'w' WHERE id = {n}")
    return pipeline


def landed(pipeline: Pipeline, database: Database, *statements: str) -> None:
    """One window with these statements."""
    database.execute(*statements)
    capture(pipeline)


@pytest.mark.parametrize("source", SOURCES)
def test_every_change_is_as_audited(
    database: Database, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In three windows, read whole and in many pieces."""
    database.execute(*MADE)
    pipeline = pipeline_of(database, tmp_path / "lake", *(f"public.{name}" for name in TABLES), **SOURCES[source])
    prepare_slot(pipeline)
    for n, statements in enumerate(TRANSACTIONS):
        commit(database, statements, prepared=bool(n % 2) and source.startswith("two-phase"))
        if n in (1, 4):
            capture(pipeline)
    capture(pipeline)
    for name in TABLES:
        whole = read(pipeline, name)
        assert_as_audited(whole, database, name)
        with monkeypatch.context() as small:
            small.setattr(plan, "_PIECE_BYTES", 1000)
            assert read(pipeline, name) == whole


def test_ranges_are_half_open_and_exact(logged: Pipeline) -> None:
    whole = read(logged, "item")
    assert [row["_operation"] for row in whole] == ["insert", "update"] * 3
    lsns = [Lsn(row["_commit_lsn"]) for row in whole]
    for first, last in ((0, 6), (1, 4), (2, 3), (5, 5)):
        upto = lsns[last] if last < len(lsns) else None
        assert read(logged, "item", lsns[first], upto) == whole[first:last]
    times = [row["_commit_time"] for row in whole]
    assert read(logged, "item", times[1], times[4]) == whole[2:5]  # from after a commit at that time
    assert read(logged, "item", datetime.now(UTC) + timedelta(days=1)) == []
    windows = [marker.window for marker in ChangeLog(logged.lake.change_log).markers()]
    assert read(logged, "item", partition=windows[2].key) == whole[2:4]
    assert read(logged, "item", partition=Window(windows[1].lo, windows[2].hi)) == whole[:4]


def test_what_cannot_be_read_says_why(logged: Pipeline) -> None:
    def refused(*asked: Any, **options: Any) -> CdcError:
        with pytest.raises(CdcError) as raised:
            read(logged, *asked, **options)
        return raised.value

    start = ChangeLog(logged.lake.change_log).markers()[0].window.lo
    unknown = refused("nothing")
    assert isinstance(unknown, ConfigurationError)
    assert str(unknown) == (
        f"the change log {logged.lake.change_log} knows no table public.nothing: it has changes of public.item"
    )
    before = refused("item", Lsn(1))
    assert isinstance(before, GapError)
    assert str(before).endswith(f"it begins at {start}")
    assert isinstance(refused("item", None, Lsn(1 << 60)), GapError)
    assert "begins at" in str(refused("item", Lsn(int(start) + 8), start))
    assert "not a table name" in str(refused("a.b.c"))
    assert "not an LSN window" in str(refused("item", partition="0/1"))


def test_a_table_without_changes_has_its_columns(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY, v text, n numeric(5,1))", "CREATE TABLE other (id int)")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.item", "public.other")
    prepare_slot(pipeline)
    capture(pipeline)
    with pytest.raises(GapError, match="began at"):
        read(pipeline, "item", datetime.now(UTC) - timedelta(days=1))
    found = changes(pipeline, "item")
    assert str(found.schema.field("after").type) == "struct<id: int32, v: string, n: decimal128(5, 1)>"
    assert found.read_all().num_rows == 0


# one window, or one for each statement
@pytest.mark.parametrize("apart", [False, True])
def test_columns_are_those_at_the_end_of_the_range(logged: Pipeline, database: Database, apart: bool) -> None:
    middle = ChangeLog(logged.lake.change_log).markers()[-1].window.hi
    statements = (
        "ALTER TABLE item ADD n int DEFAULT 5",
        "UPDATE item SET v = 'x' WHERE id = 1",
        "ALTER TABLE item RENAME v TO words",
        "UPDATE item SET words = 'y' WHERE id = 2",
        "DELETE FROM item WHERE id = 3",
    )
    for group in [[each] for each in statements] if apart else [statements]:
        landed(logged, database, *group)
    found = read(logged, "item")
    assert [row["after"] for row in found[-3:]] == [
        {"id": 1, "words": "x", "n": 5},
        {"id": 2, "words": "y", "n": 5},
        None,
    ]
    assert found[0]["after"] == {"id": 1, "words": "v1", "n": None}
    assert [row["after"] for row in read(logged, "item", None, middle)][:2] == [
        {"id": 1, "v": "v1"},
        {"id": 1, "v": "w"},
    ]


def test_the_origin_of_a_transaction(logged: Pipeline, database: Database) -> None:
    origin = f"from {database.name}"
    with database.connect() as connection:
        connection.execute("SELECT pg_replication_origin_create(%s)", [origin])
        connection.execute("SELECT pg_replication_origin_session_setup(%s)", [origin])
        connection.execute("INSERT INTO item VALUES (4, 'v4')")
        connection.execute("SELECT pg_replication_origin_session_reset()")
        connection.execute("SELECT pg_replication_origin_drop(%s)", [origin])
    capture(logged)
    assert [row["_origin"] for row in read(logged, "item")] == [None] * 6 + [origin]


def test_a_column_that_came_later_is_null(logged: Pipeline, database: Database) -> None:
    landed(logged, database, "ALTER TABLE item ADD n int DEFAULT 5", "UPDATE item SET v = 'x' WHERE id = 1")
    found = read(logged, "item")
    assert [row["after"]["n"] for row in found] == [None] * 6 + [5]


def test_another_type_divides_a_range(logged: Pipeline, database: Database) -> None:
    middle = ChangeLog(logged.lake.change_log).markers()[-1].window.hi
    landed(logged, database, "ALTER TABLE item ALTER v TYPE int USING id", "INSERT INTO item VALUES (9, 9)")
    with pytest.raises(SchemaChangeError, match=r"a type was changed.*read the changes before it and those after"):
        read(logged, "item")
    assert len(read(logged, "item", None, middle)) == 6
    assert [row["after"] for row in read(logged, "item", middle)] == [{"id": 9, "v": 9}]


def test_another_table_of_the_name_divides_a_range(logged: Pipeline, database: Database) -> None:
    landed(logged, database, "DROP TABLE item", "CREATE TABLE item (id int PRIMARY KEY)")
    middle = ChangeLog(logged.lake.change_log).markers()[-1].window.hi
    capture(logged)
    database.execute(f"ALTER PUBLICATION {database.name} ADD TABLE item")
    landed(logged, database, "INSERT INTO item VALUES (9)")
    with pytest.raises(SchemaChangeError, match=r"public\.item is another table"):
        read(logged, "item")
    assert [row["after"] for row in read(logged, "item", middle)] == [{"id": 9}]


def test_masked_columns_are_masked(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY, v text)", "ALTER TABLE item REPLICA IDENTITY FULL")
    salt, name = "a salt of some length", QualifiedName("public", "item")
    plain = pipeline_of(database, tmp_path / "lake", "public.item")
    masked = replace(plain, tables=(Table(name, mask=("v",)),), mask_salt=SecretStr(salt))
    prepare_slot(masked)
    landed(masked, database, "INSERT INTO item VALUES (1, 'canary')", "UPDATE item SET v = 'other'")
    hashes = [TableMask(("v",), salt.encode()).hashed(word).decode() for word in (b"canary", b"other")]
    inserted, updated = read(masked, "item")
    assert inserted["after"]["v"] == updated["before"]["v"] == hashes[0]
    assert updated["after"]["v"] == hashes[1]
    landed(plain, database, "UPDATE item SET v = 'plain'")
    with pytest.raises(SchemaChangeError, match="cannot be shown: since then its masked columns were changed"):
        read(plain, "item")
