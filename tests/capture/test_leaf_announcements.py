"""A leaf whose replica identity was another for a moment: the table is read again if changes may lack its key. And one
that was a leaf for a moment only: its rows went without a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import ColumnSelection, Table
from spark_jobs.prepare import prepare
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.capture.leaves import MADE, REASON
from tests.fixtures.no_spark import no_spark, synced_without_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

ROOT, OTHER = QualifiedName("public", "root"), QualifiedName("public", "other")

MOVE = "UPDATE root SET id = id + 100 WHERE id = 2"
BACK = "ALTER TABLE leaf REPLICA IDENTITY DEFAULT"
ANOTHER_INDEX = (
    "CREATE UNIQUE INDEX x ON leaf (v)",
    "ALTER TABLE leaf REPLICA IDENTITY USING INDEX x",
    MOVE,  # comes without its old key
    BACK,
    "DROP INDEX x",
)


@pytest.mark.parametrize(
    ("statements", "reasons"),
    [
        (ANOTHER_INDEX, {REASON}),
        (("ALTER TABLE ONLY root REPLICA IDENTITY FULL", *ANOTHER_INDEX), {REASON}),
        (("ALTER TABLE leaf REPLICA IDENTITY FULL", MOVE, BACK), set()),
        ((MOVE, "UPDATE leaf SET v = 'u' WHERE id = 3"), set()),
    ],
    ids=["another index", "under a FULL root", "FULL lacks nothing", "no other identity"],
)
def test_an_identity_for_a_moment(
    database: Database, tmp_path: Path, statements: tuple[str, ...], reasons: set[tuple[str, ...]]
) -> None:
    database.execute(*MADE)
    pipeline = pipeline_of(database, tmp_path / "lake", "public.root")
    prepare(pipeline)
    capture(pipeline)
    database.execute(*statements)
    landed = capture(pipeline).landed
    found = [changed for marker in landed if marker.catalogue for changed in marker.catalogue.changed]
    assert {why for changed in found for why in (changed.reasons,) if REASON[0] in why} == reasons


ATTACH = "ALTER TABLE root ATTACH PARTITION more FOR VALUES FROM (1000) TO (2000)"
WRITE = "INSERT INTO root VALUES (3, 'in a known leaf'), (1500, 'm')"
DETACH, DROP = "ALTER TABLE root DETACH PARTITION more", "DROP TABLE more"
MORE = "CREATE TABLE more PARTITION OF root FOR VALUES FROM (1000) TO (2000)"
AGAIN = "more was a partition for a time"
# what happens between two looks, and whether it takes what a leaf has sent to tell that rows are gone
FOR_A_TIME = {
    "dropped": ((MORE, WRITE, DROP), AGAIN),
    "detached": ((MORE, WRITE, DETACH), AGAIN),
    "in one transaction": (("; ".join(("BEGIN", MORE, WRITE, DROP, "COMMIT")),), AGAIN),
    "attached": (("CREATE TABLE more (v text NOT NULL, id int PRIMARY KEY)", ATTACH, WRITE, DETACH), AGAIN),
    "of a partition": (
        (f"{MORE} PARTITION BY RANGE (id)", "CREATE TABLE most PARTITION OF more DEFAULT", WRITE, DROP),
        "most was a partition for a time",
    ),
    "still there": ((MORE, WRITE), None),
    "rolled back": (("; ".join(("BEGIN", MORE, WRITE, "ROLLBACK")),), None),
    "not written": ((MORE, DROP), None),
    "another table with these columns": (("INSERT INTO other VALUES (1, 'o')", "DROP TABLE other"), None),
}


BY_DAY = ("dropped", "attached", "still there")


@pytest.mark.parametrize("source", [{}, at_night({"streaming": "on", "binary": True})], ids=["", "streamed"])
@pytest.mark.parametrize("what", [*BY_DAY, *(at_night(what) for what in FOR_A_TIME if what not in BY_DAY)])
def test_a_leaf_for_a_moment(database: Database, tmp_path: Path, what: str, source: dict[str, Any]) -> None:
    """The user's own publication sends other tables, too."""
    database.execute(*MADE, "DELETE FROM root WHERE id = 3", "CREATE TABLE other (LIKE root INCLUDING ALL)")
    database.execute(
        f'CREATE PUBLICATION "{database.name}" FOR ALL TABLES WITH (publish_via_partition_root)',
        f"ALTER DATABASE \"{database.name}\" SET logical_decoding_work_mem = '64kB'",
    )
    pipeline = pipeline_of(database, tmp_path / "lake", "public.root", **source)
    synced_without_spark(pipeline)
    statements, reason = FOR_A_TIME[what]
    database.execute(*statements, "UPDATE root SET v = 'u' WHERE id = 4")
    (table,) = sync(pipeline, no_spark).snapshots or (None,)
    assert (table is not None) == (reason is not None)
    assert reason is None or (table is not None and f"public.{reason}" in table.reason)
    assert verify(pipeline, no_spark).problems == ()
    assert sync(pipeline, no_spark).snapshots == ()


IS_WRITTEN = "UPDATE more SET v = v || 'own'"


@pytest.mark.parametrize(
    ("own", "since"),
    [
        (IS_WRITTEN, IS_WRITTEN),
        ("SELECT", "SELECT"),
        ("SELECT", "GRANT SELECT ON more TO PUBLIC"),
        ("SELECT", "TRUNCATE more"),
        ("SELECT", "ALTER TABLE more ALTER v SET DEFAULT 'x'"),
        ("SELECT", "ALTER TABLE more ADD added int"),
        ("SELECT", "ALTER TABLE root ADD added int"),
        ("SELECT", "DROP TABLE more"),
        (IS_WRITTEN, "ALTER TABLE more RENAME TO another"),
    ],
    ids=["written", "idle", "granted", "truncated", "default", "added", "added above", "dropped", "renamed"],
)
def test_a_followed_table_that_was_a_leaf_for_a_moment(
    every_database: Database, tmp_path: Path, own: str, since: str
) -> None:
    """What it was sent as a leaf, the lake has in the other table."""
    every_database.execute(*MADE, "CREATE TABLE more (LIKE root INCLUDING ALL)", "INSERT INTO more VALUES (1502, 'm')")
    pipeline = pipeline_of(every_database, tmp_path / "lake", "public.root", "public.more")
    synced_without_spark(pipeline)
    every_database.execute(own, ATTACH, WRITE.replace("(3", "(10"), "DELETE FROM more WHERE id = 1502", DETACH, since)
    followed = {"public.root"} if "DROP" in since or "RENAME" in since else {"public.root", "public.more"}
    assert {str(table.name) for table in sync(pipeline, no_spark).snapshots if table.error is None} == followed
    assert verify(pipeline, no_spark, names=[QualifiedName.parse(name) for name in followed]).problems == ()


def test_a_followed_table_that_is_altered_otherwise(every_database: Database, tmp_path: Path) -> None:
    every_database.execute(*MADE, "CREATE TABLE more (LIKE root INCLUDING ALL)")
    pipeline = pipeline_of(every_database, tmp_path / "lake", "public.root", "public.more")
    synced_without_spark(pipeline)
    every_database.execute(
        "ALTER TABLE more ALTER v SET DEFAULT 'x'", "GRANT SELECT ON more TO PUBLIC", "INSERT INTO more (id) VALUES (1)"
    )
    assert sync(pipeline, no_spark).snapshots == ()
    assert verify(pipeline, no_spark).problems == ()


def test_a_leaf_with_another_column_list_for_a_moment(database: Database, tmp_path: Path) -> None:
    database.execute(*MADE, "CREATE TABLE more (LIKE root INCLUDING ALL)")
    listed = Table(QualifiedName("public", "more"), columns=ColumnSelection(exclude=("v",)))
    pipeline = replace(pipeline_of(database, tmp_path / "lake"), tables=(Table(ROOT), listed))
    synced_without_spark(pipeline)
    database.execute(ATTACH, WRITE.replace("(3", "(10"), DETACH)
    assert {str(table.name) for table in sync(pipeline, no_spark).snapshots} == {"public.root", "public.more"}
    assert verify(pipeline, no_spark).problems == ()


@pytest.mark.parametrize("published", ["alone", "as leaves", "with all tables"])
def test_a_leaf_that_is_sent_under_its_own_name_all_the_time(
    database: Database, tmp_path: Path, published: str
) -> None:
    """To attach or to detach it loses nothing."""
    database.execute(*MADE, "CREATE TABLE more (LIKE root INCLUDING ALL)", "INSERT INTO more VALUES (1502, 'm')")
    if published != "alone":
        what = "TABLE more, leaf" if published == "as leaves" else "ALL TABLES"
        database.execute(f'CREATE PUBLICATION "{database.name}" FOR {what}')
    pipeline = pipeline_of(database, tmp_path / "lake", "public.more")
    synced_without_spark(pipeline)
    for ddl in (ATTACH, DETACH):
        database.execute(IS_WRITTEN, ddl, IS_WRITTEN)
        assert sync(pipeline, no_spark).snapshots == ()
        assert verify(pipeline, no_spark).problems == ()


def test_a_followed_table_that_is_a_leaf_now(database: Database, tmp_path: Path) -> None:
    """Only what it holds is read again. It stops alone, until it is detached."""
    database.execute(*MADE, "CREATE TABLE more (LIKE root INCLUDING ALL)", "INSERT INTO more VALUES (1502, 'm')")
    database.execute("CREATE TABLE other (LIKE root INCLUDING ALL)", "INSERT INTO other VALUES (1, 'o')")
    pipeline = pipeline_of(database, tmp_path / "lake", "public.root", "public.more", "public.other")
    synced_without_spark(pipeline)
    database.execute(ATTACH)
    report = sync(pipeline, no_spark)
    assert report.snapshots == ()
    assert [table.partitions.rows for table in report.tables if table.partitions] == [1]
    (error,) = report.errors
    assert "public.more is a partition of public.root" in error.what
    database.execute(WRITE.replace("(3", "(10"), "UPDATE other SET v = 'others are not stopped'")
    assert [again.what for again in sync(pipeline, no_spark).errors] == [error.what]
    assert verify(pipeline, no_spark, names=[ROOT, OTHER]).problems == ()
    database.execute(DETACH, "INSERT INTO more VALUES (1503, 'again')")
    assert {str(table.name) for table in synced_without_spark(pipeline).snapshots} == {"public.more"}
    assert verify(pipeline, no_spark).problems == ()


@pytest.mark.parametrize("name", ["more", '"Select ""it"""'])
@pytest.mark.parametrize("is_another", [True, False], ids=["another", "one"])
def test_lines_of_two_leaves_of_one_name(database: Database, tmp_path: Path, name: str, *, is_another: bool) -> None:
    """``test_decoding`` names leaves: a second one would be taken for the first."""
    database.execute(*MADE)
    pipeline = pipeline_of(database, tmp_path / "lake", "public.root", plugin="test_decoding")
    synced_without_spark(pipeline)
    made, dropped = (statement.replace("more", name) for statement in (MORE, DROP))
    first = (made, "INSERT INTO root VALUES (1500, 'gone')", dropped) if is_another else ()
    database.execute(*first, made, "INSERT INTO root VALUES (1501, 'stays')")
    assert [again.reason != "" for again in sync(pipeline, no_spark).snapshots] == [True] * is_another
    assert verify(pipeline, no_spark).problems == ()
    assert sync(pipeline, no_spark).snapshots == ()


@pytest.mark.parametrize(
    ("statements", "rows"),
    [((MORE, WRITE, "TRUNCATE more"), 0), ((MORE, WRITE, "TRUNCATE more", WRITE.replace("(3", "(11")), 1)],
    ids=["emptied", "written since"],
)
def test_a_new_leaf_that_was_truncated_on_its_own(
    every_database: Database, tmp_path: Path, statements: tuple[str, ...], rows: int
) -> None:
    """Only what it may hold is read."""
    every_database.execute(*MADE, "DELETE FROM root WHERE id = 3")
    pipeline = pipeline_of(every_database, tmp_path / "lake", "public.root")
    synced_without_spark(pipeline)
    every_database.execute(*statements)
    report = synced_without_spark(pipeline)
    assert report.snapshots == ()
    assert [table.partitions.rows for table in report.tables if table.partitions] == [rows]
    assert verify(pipeline, no_spark).problems == ()


@pytest.mark.parametrize(
    ("comes", "goes"),
    [
        (("CREATE TABLE more (LIKE root INCLUDING ALL)", "INSERT INTO more VALUES (1502, 'm')", ATTACH), DETACH),
        ((MORE, WRITE.replace("(3", "(10")), DROP),
    ],
    ids=["attached", "created"],
)
def test_a_leaf_between_two_looks_that_are_alike(
    every_database: Database, tmp_path: Path, comes: tuple[str, ...], goes: str
) -> None:
    """The catalogue looks as it did at the snapshot, and the rows have been read since."""
    every_database.execute(*MADE)
    pipeline = pipeline_of(every_database, tmp_path / "lake", "public.root")
    synced_without_spark(pipeline)
    for ddl in (comes, (goes,)):
        every_database.execute(*ddl)
        assert synced_without_spark(pipeline).snapshots == ()
        assert verify(pipeline, no_spark).problems == ()


def test_a_leaf_that_a_look_has_shown_is_read_alone(database: Database, tmp_path: Path) -> None:
    database.execute(*MADE, MORE)
    pipeline = pipeline_of(database, tmp_path / "lake", "public.root")
    synced_without_spark(pipeline)
    database.execute(WRITE.replace("(3, 'in a known leaf'), ", ""), DETACH)
    assert sync(pipeline, no_spark).snapshots == ()
    assert verify(pipeline, no_spark).problems == ()
