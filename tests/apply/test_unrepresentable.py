"""``_unrepresentable``: a record of each value that was stored otherwise than the source has it, written once, and the
counts that each commit carries."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pydantic import SecretStr

from spark_jobs.configuration import Pipeline, Table
from spark_jobs.drop.drop import drop
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.table_state import state_in_cut
from spark_jobs.lake.unrepresentable import RecordsOf
from spark_jobs.maintain.maintain import maintain
from spark_jobs.options.column_options import ColumnOptions, OnUnrepresentable
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.schema.misfits import MOST_RECORDS
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from spark_jobs.writers.with_arrow.rows_of_table import rows_of_table
from tests.apply.replaced_values import (
    MODES,
    NAMES,
    OF_FIRST,
    change_all,
    counts,
    in_every_mode,
    of_changes,
    of_first,
    records,
    rows,
    state_of,
)
from tests.apply.several_modes import in_modes
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database
from tests.snapshot.large_table import BIG, LargeTable, created
from tests.spark.crash_here import Crash, crash

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    ("policy", "source"),
    [("null", {}), ("clamp", {"binary": True}), ("clamp", {"plugin": "test_decoding"})],
    ids=["pgoutput", "binary", "test_decoding"],
)
def test_each_row_that_is_written_has_its_records(
    database: Database, tmp_path: Path, policy: OnUnrepresentable, source: dict[str, Any]
) -> None:
    """Snapshot and changes, in all modes: once each, as PostgreSQL prints them."""
    pipeline = in_every_mode(database, tmp_path / "lake", policy, **source)
    taken = synced_without_spark(pipeline).snapshots
    for name in NAMES.values():
        assert records(pipeline, name) == of_first(policy)
        assert counts(pipeline, name) == dict.fromkeys(OF_FIRST, 1)
    assert {row["lsn"] for row in rows(pipeline)} == {int(taken[0].lsn)}
    change_all(database)
    synced_without_spark(pipeline)
    for mode, name in NAMES.items():
        found = records(pipeline, name, since=2)
        assert sorted(found, key=str) == of_changes(mode, policy), mode
        assert sum(counts(pipeline, name).values()) == len(OF_FIRST) + len(found)
    later = {row["lsn"] for row in rows(pipeline) if row["commit"] > 1}
    assert min(later) > int(taken[0].lsn)
    assert len(later) > len(MODES)
    assert {table.verdict for table in verify(pipeline, no_spark).tables} == {"equal"}


def one_table(database: Database, lake: Path, columns: str, policy: OnUnrepresentable = "clamp") -> Pipeline:
    database.execute(f"CREATE TABLE t ({columns})")
    return replace(pipeline_of(database, lake, "public.t"), on_unrepresentable=policy)


def test_without_a_key_the_row_is_named_by_none_and_counts_once(database: Database, tmp_path: Path) -> None:
    """A value that is replaced by one that fits, and rows that are removed, leave no record; nor does a table of which
    every value fits leave a folder."""
    pipeline = one_table(database, tmp_path / "lake", "n int, day date")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES (1, '2024-01-01')")
    synced_without_spark(pipeline)
    assert not Path(pipeline.lake.unrepresentable).exists()
    database.execute(
        "INSERT INTO t VALUES (2, 'infinity'), (2, 'infinity'), (3, 'infinity'), (4, '9999-12-31')",
        "UPDATE t SET day = '2024-01-02' WHERE n = 3",
        "DELETE FROM t WHERE n = 4",
    )
    synced_without_spark(pipeline)
    assert records(pipeline, "public.t") == [(None, "day", "infinity", "9999-12-31")]
    database.execute("DELETE FROM t")
    synced_without_spark(pipeline)
    assert counts(pipeline, "public.t") == {"day": 1}
    cut = latest_cut(pipeline.lake)  # what an idle table's state is known from
    assert cut is not None
    assert [state_in_cut(cut, table).unrepresentable.counts for table in cut.tables] == [{"day": 1}]
    assert [table.verdict for table in verify(pipeline, no_spark).tables] == ["equal"]


@pytest.mark.parametrize("again", ["next commit", "maintain", "new snapshot"])
def test_records_of_a_killed_process_are_added_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    pipeline = one_table(database, tmp_path / "lake", "id int PRIMARY KEY, day date")
    synced_without_spark(pipeline)
    database.execute("INSERT INTO t VALUES (1, 'infinity')")
    with monkeypatch.context() as killed:
        killed.setattr(RecordsOf, "written", crash)  # before the table's commit
        with pytest.raises(Crash):
            synced_without_spark(pipeline)
    assert counts(pipeline, "public.t") == {}
    kept = RecordsOf.add
    with monkeypatch.context() as killed:  # after it
        killed.setattr(RecordsOf, "add", lambda of, file: kept(of, file) if file is None else crash())
        with pytest.raises(Crash):
            synced_without_spark(pipeline)
    assert counts(pipeline, "public.t") == {"day": 1}
    assert rows(pipeline) == []
    expected = [('{"id": "1"}', "day", "infinity", "9999-12-31")]
    for _ in range(2):
        match again:
            case "next commit":
                database.execute("INSERT INTO t SELECT max(id) + 1, '2024-01-01' FROM t")
                synced_without_spark(pipeline)
            case "maintain":
                assert maintain(pipeline, no_spark).errors == ()
            case "new snapshot":
                taken(pipeline)
        assert [row for row in records(pipeline, "public.t") if row[0] == '{"id": "1"}'][:1] == expected
        once = 1 if again != "new snapshot" else 1 + state_of(pipeline, "public.t").commits - 2
        assert len(rows(pipeline)) == once


def taken(pipeline: Pipeline) -> None:
    (done,) = snapshot(Run(pipeline, no_spark))
    assert done.error is None


def test_a_new_snapshot_counts_anew(database: Database, tmp_path: Path) -> None:
    """The records of before stay, under the generation that they are of."""
    pipeline = one_table(database, tmp_path / "lake", "id int PRIMARY KEY, day date")
    database.execute("INSERT INTO t VALUES (1, 'infinity'), (2, '-infinity')")
    synced_without_spark(pipeline)
    database.execute("UPDATE t SET day = '2024-01-01' WHERE id = 2")
    synced_without_spark(pipeline)
    assert counts(pipeline, "public.t") == {"day": 2}
    taken(pipeline)
    assert counts(pipeline, "public.t") == {"day": 1}
    (status,) = pipeline_status(pipeline).tables
    assert status.unrepresentable == {"day": 1}
    now = str(state_of(pipeline, "public.t").generation)
    assert [row["generation"] == now for row in sorted(rows(pipeline), key=lambda row: row["commit"])] == [
        False,
        False,
        True,
    ]


def test_maintain_keeps_records_small_and_drop_removes_them(database: Database, tmp_path: Path) -> None:
    pipeline = one_table(database, tmp_path / "lake", "id int PRIMARY KEY, day date")
    for number in range(3):
        database.execute(f"INSERT INTO t VALUES ({number}, 'infinity')")
        synced_without_spark(pipeline)
    done = maintain(pipeline, no_spark)
    assert done.errors == ()
    assert done.unrepresentable is not None
    assert (done.unrepresentable.files_before, done.unrepresentable.files_after) == (3, 1)
    assert len(rows(pipeline)) == 3
    time.sleep(1)
    brief = replace(pipeline, retention=replace(pipeline.retention, change_log=timedelta()))
    assert maintain(brief, no_spark).errors == ()
    assert rows(pipeline) == []
    assert counts(pipeline, "public.t") == {"day": 3}
    assert drop(pipeline, lake=True).left == ()
    assert not Path(pipeline.lake.unrepresentable).exists()


def test_masked_values_and_keys_are_in_no_record(database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE t (id text PRIMARY KEY, born date, day date)",
        "INSERT INTO t VALUES ('canary-1', 'infinity', 'infinity')",
    )
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), on_unrepresentable="null")
    table = Table(QualifiedName("public", "t"), mask=("id", "born"))
    pipeline = replace(pipeline, tables=(table,), mask_salt=SecretStr("salt of this test"))
    synced_without_spark(pipeline)
    database.execute("INSERT INTO t VALUES ('canary-2', '-infinity', '-infinity')")
    synced_without_spark(pipeline)
    hashed = {row["id"] for row in rows_of_table(DeltaTable(pipeline.lake.table(table.name))).to_pylist()}
    found = records(pipeline, "public.t")
    assert {(column, text, stored) for _, column, text, stored in found} == {
        ("day", "infinity", None),
        ("day", "-infinity", None),
    }
    assert {json.loads(key or "")["id"] for key, *_ in found} == hashed
    assert "canary" not in str(rows(pipeline))


def test_what_is_beyond_the_most_records_is_counted(database: Database, tmp_path: Path) -> None:
    pipeline = one_table(database, tmp_path / "lake", "id int PRIMARY KEY, day date")
    many = MOST_RECORDS + 5
    database.execute(f"INSERT INTO t SELECT g, 'infinity' FROM generate_series(1, {many}) g")
    synced_without_spark(pipeline)
    database.execute("UPDATE t SET day = '-infinity'")
    synced_without_spark(pipeline)
    assert counts(pipeline, "public.t") == {"day": 2 * many}
    assert len(rows(pipeline)) == 2 * MOST_RECORDS


def test_a_large_table_has_records_of_its_chunks_and_of_changes_meanwhile(database: Database, tmp_path: Path) -> None:
    created(database).execute("ALTER TABLE big ADD day date", "UPDATE big SET day = 'infinity' WHERE id % 1000 = 0")
    table = Table(BIG, options=ColumnOptions(policies=(("day", "clamp"),)))
    large = LargeTable.at(database, tmp_path / "lake", table=table).prepared()
    large.read_on()
    database.execute(
        "UPDATE big SET day = '-infinity' WHERE id = 7", "INSERT INTO big (id, day) VALUES (9001, 'infinity')"
    )
    large.read_on()
    taken = large.read_on(to_the_end=True)
    assert taken.error is None
    found = records(large.pipeline, "public.big")
    expected = {str(number) for number in (1000, 2000, 3000, 4000, 7, 9001)}
    assert {json.loads(key or "")["id"] for key, *_ in found} == expected
    assert counts(large.pipeline, "public.big") == {"day": len(found)}


@pytest.mark.parametrize("first", [True, False], ids=["snapshot", "changes"])
def test_a_key_that_does_not_fit_stops_each_mode(database: Database, tmp_path: Path, first: bool) -> None:
    """Whatever the policy, and the hint says what ends it."""
    database.execute("CREATE TABLE k (day date PRIMARY KEY, n int)")
    made = replace(pipeline_of(database, tmp_path / "lake"), on_unrepresentable="null")
    pipeline = replace(made, tables=in_modes(QualifiedName("public", "k"), *MODES))
    if not first:
        synced_without_spark(pipeline)
    database.execute("INSERT INTO k VALUES ('infinity', 1)")
    errors = sync(pipeline, no_spark).errors
    assert [error.what.count("column day: infinity") for error in errors] == [1, 1, 1, 1]
    database.execute("UPDATE k SET day = '2024-01-01'")
    errors = sync(pipeline, no_spark).errors
    if not first:
        assert [error.hint.rpartition("--table ")[2] for error in errors] == [f"'public.k__{m}'" for m in MODES[1:]]
        assert all(done.error is None for done in snapshot(Run(pipeline, no_spark)))
    synced_without_spark(pipeline)
    assert {table.verdict for table in verify(pipeline, no_spark).tables} == {"equal"}
    assert rows(pipeline) == []
    changes = rows_of_table(DeltaTable(pipeline.lake.table(QualifiedName("public", "k__append"))))
    assert changes.column("day").null_count == 0
