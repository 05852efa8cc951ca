"""A table that another session alters is locked for as long as that takes: what is captured does not wait for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.errors import PreconditionError
from spark_jobs.postgres import connection, publication
from spark_jobs.postgres.session_settings import PIN_STATEMENT
from spark_jobs.prepare import prepare
from spark_jobs.recover import recover
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres


def test_locked_tables_block_nothing(every_database: Database, tmp_path: Path) -> None:
    every_database.execute(
        "CREATE TABLE parted (id int PRIMARY KEY, t text) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE plain (id int PRIMARY KEY, t text DEFAULT 'x', u int GENERATED ALWAYS AS (id + 1) STORED)",
        "CREATE TABLE filtered (id int PRIMARY KEY, t text)",
    )
    names = ("parted", "plain", "filtered")
    row_filter = " WHERE (id > 0)" if every_database.server.version >= 15 else ""
    every_database.execute(
        f"CREATE PUBLICATION theirs FOR TABLE parted, plain, filtered{row_filter} WITH (publish_via_partition_root)",
        f"CREATE PUBLICATION other FOR TABLE\n\n filtered{row_filter}, plain",
    )
    made = pipeline_of(every_database, tmp_path / "lake", *(f"public.{name}" for name in names))
    pipeline = replace(made, source=replace(made.source, publication=("theirs", "other")))
    prepare(pipeline)
    capture(pipeline)
    every_database.execute(
        "ALTER TABLE plain ADD v text DEFAULT 'x'",
        "INSERT INTO plain VALUES (1, 'x')",
        "INSERT INTO parted VALUES (15, 'x')",
        "INSERT INTO filtered VALUES (1, 'x')",
    )
    with every_database.connect() as other:
        other.execute("BEGIN; LOCK TABLE parted_1, plain, filtered IN ACCESS EXCLUSIVE MODE")
        prepare(pipeline)
        landed = capture(pipeline).landed
        other.execute("ROLLBACK")
    assert sum(marker.changes for marker in landed) == 3


def test_lines_of_locked_tables_are_captured(every_database: Database, tmp_path: Path) -> None:
    """``test_decoding`` names partitions, so capture looks up which table they belong to."""
    every_database.execute(
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1_low PARTITION OF parted_1 FOR VALUES FROM (0) TO (5)",
        "CREATE TABLE plain (id int PRIMARY KEY)",
        "CREATE TABLE heir () INHERITS (plain)",
    )
    made = pipeline_of(every_database, tmp_path / "lake", "public.parted", "public.plain")
    pipeline = replace(made, source=replace(made.source, plugin="test_decoding"))
    prepare(pipeline)
    capture(pipeline)
    every_database.execute(
        "INSERT INTO plain VALUES (1)", "INSERT INTO parted VALUES (1)", "INSERT INTO heir VALUES (2)"
    )
    with every_database.connect() as other:
        other.execute("BEGIN; LOCK TABLE parted, plain, heir IN ACCESS EXCLUSIVE MODE")
        landed = capture(pipeline).landed
        other.execute("ROLLBACK")
    assert sum(marker.changes for marker in landed) == 2


def test_rows_that_lie_in_another_file_are_not_waited_for(every_database: Database, tmp_path: Path) -> None:
    """A TRUNCATE is explained by its message. A VACUUM FULL is by the rows, which nobody can look at while they are
    locked: in doubt the table is read again."""
    for name in ("emptied", "packed"):
        every_database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY) PARTITION BY RANGE (id)",
            f"CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES FROM (0) TO (10)",
            f"INSERT INTO {name} SELECT generate_series(1, 9)",
        )
    pipeline = pipeline_of(every_database, tmp_path / "lake", "public.emptied", "public.packed")
    prepare(pipeline)
    every_database.execute("DELETE FROM emptied WHERE id = 1")
    capture(pipeline)
    every_database.execute("TRUNCATE emptied", "VACUUM FULL packed_1", "INSERT INTO emptied VALUES (2)")
    with every_database.connect() as other:
        other.execute("BEGIN; LOCK TABLE emptied_1, packed_1 IN ACCESS EXCLUSIVE MODE")
        landed = list(capture(pipeline).landed)
        other.execute("ROLLBACK")
    while landed[-1].catalogue is not None and landed[-1].catalogue.moved:
        every_database.execute("DELETE FROM packed WHERE id = 1", "INSERT INTO packed VALUES (1)")
        landed += capture(pipeline).landed
    changed = {table.relname for marker in landed if marker.catalogue for table in marker.catalogue.changed}
    assert changed == {"packed"}


def test_a_table_that_cannot_join_our_publication_holds_back_itself_alone(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while there is no publication yet. As soon as it is no longer locked, it begins."""
    monkeypatch.setattr(publication, "_JOINING", "300ms")
    names = ("free", "locked", "later")
    database.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
    few, all_three = (
        pipeline_of(database, tmp_path / "lake", *(f"public.{name}" for name in listed))
        for listed in (names[:2], names)
    )
    with database.connect() as session:
        session.execute("BEGIN; LOCK TABLE locked IN SHARE UPDATE EXCLUSIVE MODE")
        for pipeline, count in ((few, 1), (all_three, 2)):
            database.execute("INSERT INTO free SELECT count(*) FROM free")
            (error,) = sync(pipeline, no_spark).errors
            assert str(error).startswith("public.locked is locked, and cannot be added to publication")
            assert len(prepare(pipeline).tables) == count
        monkeypatch.setattr(connection, "PIN_STATEMENT", PIN_STATEMENT.replace("60s", "300ms"))
        with pytest.raises(PreconditionError, match=r"publication \w+ is to send: public\.locked: .*see pg_locks"):
            prepare(pipeline_of(database, tmp_path / "lake", "public.locked"))
        session.execute("ROLLBACK")
    synced_without_spark(all_three)
    assert verify(all_three, no_spark).problems == ()


def test_recover_goes_on_without_a_locked_table(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slot and publication are gone; what the VACUUM of one table holds up is its own snapshot."""
    monkeypatch.setattr(publication, "_JOINING", "300ms")
    database.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("free", "locked")))
    pipeline = pipeline_of(database, tmp_path / "lake", "public.free", "public.locked")
    synced_without_spark(pipeline)
    database.execute(
        "SELECT pg_drop_replication_slot(current_database())",
        f"DROP PUBLICATION {database.name}",
        "INSERT INTO free VALUES (1)",
        "INSERT INTO locked VALUES (1)",
    )
    with database.connect() as session:
        session.execute("BEGIN; LOCK TABLE locked IN SHARE UPDATE EXCLUSIVE MODE")
        report = recover(pipeline, no_spark)
        session.execute("ROLLBACK")
    assert report.chapter is not None
    assert [str(taken.name) for taken in report.snapshots if taken.error is None] == ["public.free"]
    (error,) = report.errors
    assert str(error).startswith("public.locked is locked, and cannot be added to publication")
    synced_without_spark(pipeline)
    assert verify(pipeline, no_spark).problems == ()
