"""Tables that keep what was: each mode against an audit log that triggers keep in the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.configuration import MergeEngine, Table
from spark_jobs.options.table_mode import Mode
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.run import Run
from spark_jobs.sync import sync
from spark_jobs.verify.verify import verify
from tests.at_night import at_night
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import lake_rows as table_rows
from tests.fixtures.servers import Database
from tests.spark.audit import AUDIT, Row, audit_of, audited
from tests.spark.followed_pipeline import Followed
from tests.spark.mode_oracle import Oracle, lake_rows, xids_by_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

# keyed by mode; the fourth has no key, and sends whole old rows
TABLES: dict[str, Mode] = {"softly": "soft_delete", "versions": "history", "changes": "append", "whole": "append"}


def _made() -> tuple[str, ...]:
    statements = [*AUDIT]
    for name in TABLES:
        key = "" if name == "whole" else " PRIMARY KEY"
        statements += [
            f"CREATE TABLE {name} (id int{key}, v text, doc text, n int)",
            f"ALTER TABLE {name} ALTER doc SET STORAGE EXTERNAL",
            f"INSERT INTO {name} SELECT g, 'v' || g, repeat('d', 3000 + g), g % 3 FROM generate_series(1, 20) g",
            *audited(name),
        ]
    return (*statements, "ALTER TABLE whole REPLICA IDENTITY FULL")


def _on_each(template: str) -> list[str]:
    return [template.format(t=name) for name in TABLES]


@dataclass(frozen=True)
class _WithoutSpark(Followed):
    """As the engine ``auto`` follows small tables."""

    @property
    def run(self) -> Run:
        return replace(super().run, spark=no_spark)


def _started(spark: SparkSession, database: Database, lake: Path, engine: MergeEngine = "spark") -> Followed:
    """The tables made, each in its mode, with their first snapshots."""
    database.execute(*_made())
    followed = (_WithoutSpark if engine == "auto" else Followed).start(spark, database, lake, *TABLES)
    tables = tuple(Table(QualifiedName("public", name), mode) for name, mode in TABLES.items())
    followed = replace(followed, pipeline=replace(followed.pipeline, tables=tables, merge_engine=engine))
    assert [taken.error for taken in followed.snapshot()] == [None] * len(TABLES)
    return followed


def _snapshot_rows() -> list[Row]:
    return [{"id": g, "v": f"v{g}", "doc": "d" * (3000 + g), "n": g % 3} for g in range(1, 21)]


def _rows(followed: Followed, name: str) -> list[Row]:
    return lake_rows(followed.spark, followed.pipeline, name, TABLES[name])


def assert_as_audited(followed: Followed, since: Sequence[Row]) -> None:
    xids = xids_by_lsn(followed.pipeline)
    for name, mode in TABLES.items():
        oracle = Oracle(since, audit_of(followed.database, name), xids, whole=name == "whole")
        oracle.assert_agrees(mode, _rows(followed, name))


# each is one range of windows
STEPS: dict[str, list[list[str]]] = {
    "each kind of change": [
        ["INSERT INTO {t} VALUES (100, 'new', repeat('x', 4000), 1)"],
        ["UPDATE {t} SET v = 'changed' WHERE id < 4"],
        ["UPDATE {t} SET doc = repeat('y', 4000) WHERE id = 5", "UPDATE {t} SET n = 9 WHERE id = 5"],
        ["DELETE FROM {t} WHERE id IN (6, 7)"],
    ],
    "keys that move keep their documents, keys come again": [
        ["UPDATE {t} SET id = 200 WHERE id = 8"],
        ["UPDATE {t} SET id = 201 WHERE id = 200", "UPDATE {t} SET v = 'moved twice' WHERE id = 201"],
        ["DELETE FROM {t} WHERE id = 9", "INSERT INTO {t} VALUES (9, 'again', NULL, NULL)"],
        ["INSERT INTO {t} VALUES (300, 'short', 'life', 1)", "DELETE FROM {t} WHERE id = 300"],
        ["INSERT INTO {t} VALUES (6, 'back', 'from the dead', 2)"],
    ],
    "inserts alone": [["INSERT INTO {t} VALUES (400, 'a', 'b', 1), (401, NULL, NULL, NULL)"]],
    "emptied in the middle": [
        ["UPDATE {t} SET v = 'before it is emptied' WHERE id IN (11, 12)", "DELETE FROM {t} WHERE id = 13"],
        ["TRUNCATE {t}", "INSERT INTO {t} VALUES (11, 'after', 'it', 1), (500, 'was', 'emptied', 2)"],
        ["UPDATE {t} SET v = 'and on' WHERE id = 11"],
    ],
    "emptied twice": [
        ["TRUNCATE {t}"],
        ["INSERT INTO {t} VALUES (1, 'x', 'y', 1)"],
        ["TRUNCATE {t}"],
        ["INSERT INTO {t} SELECT g, 'z', repeat('z', 3000), 0 FROM generate_series(1, 9) g"],
    ],
}


def _run(database: Database, transactions: Sequence[Sequence[str]]) -> None:
    for statements in transactions:
        with database.connect() as connection, connection.transaction():
            for template in statements:
                for statement in _on_each(template):
                    connection.execute(statement)


# each way to write of Spark's: the others repeat them on other rows
_BY_DAY = ("each kind of change", "keys that move keep their documents, keys come again", "emptied in the middle")


# to rebuild the tables takes Spark longer than all the steps, and the same code does it for both engines
@pytest.mark.parametrize(
    ("engine", "steps", "rebuilds"),
    [
        ("spark", _BY_DAY, True),
        ("auto", tuple(STEPS), False),
        at_night("spark", tuple(STEPS), True),
        at_night("auto", tuple(STEPS), True),
    ],
    ids=["by day", "without Spark", "all", "rebuilt by Spark"],
)
def test_each_step(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, steps: tuple[str, ...], rebuilds: bool
) -> None:
    followed = _started(spark, database, tmp_path / "lake", engine)
    assert_as_audited(followed, _snapshot_rows())
    for step in steps:
        _run(database, STEPS[step])
        assert [(step, applied.error) for applied in followed.sync()] == [(step, None)] * len(TABLES)
        assert_as_audited(followed, _snapshot_rows())
    report = verify(followed.pipeline, lambda: spark)
    verdicts = {table.name.relname: table.verdict for table in report.tables}
    assert verdicts == {"softly": "equal", "versions": "equal"}
    if not rebuilds:
        return
    start, end = followed.markers[1].window.lo, followed.markers[-1].window.hi
    again = rebuild(Run(followed.pipeline, lambda: spark), start, end, followed.names)
    assert [table.outcome for table in again.tables] == ["rebuilt"] * len(TABLES)
    assert_as_audited(followed, _snapshot_rows())


@pytest.mark.nightly
def test_executors_do_the_same(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """In two ranges; the first one's key moves lean on rows of other keys."""
    followed = replace(_started(spark, database, tmp_path / "lake"), on_driver_bytes=0)
    steps = list(STEPS.values())
    for part in (steps[:3], steps[3:]):
        for transactions in part:
            _run(database, transactions)
        assert [applied.error for applied in followed.sync()] == [None] * len(TABLES)
        assert_as_audited(followed, _snapshot_rows())


@pytest.mark.parametrize("engine", [at_night("spark"), "auto"])
def test_a_new_snapshot_keeps_what_was(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine
) -> None:
    """What changed unseen counts as changed at the snapshot's LSN; what did not, is still the version it was."""
    followed = _started(spark, database, tmp_path / "lake", engine)
    _run(database, [["DELETE FROM {t} WHERE id IN (1, 2)", "UPDATE {t} SET n = 7 WHERE id = 3"]])
    assert [applied.error for applied in followed.sync()] == [None] * len(TABLES)
    before = {name: _rows(followed, name) for name in TABLES}
    unseen = [
        "ALTER TABLE {t} DISABLE TRIGGER USER",
        "DELETE FROM {t} WHERE id = 4",
        "UPDATE {t} SET n = 8 WHERE id = 5",
    ]
    _run(database, [[*unseen, "INSERT INTO {t} VALUES (600, 'new', 'n', 1)", "ALTER TABLE {t} ALTER n TYPE bigint"]])
    capture(followed.pipeline)  # those windows lie before the snapshots, so none of their changes is applied
    taken = followed.snapshot()
    assert [table.error for table in taken] == [None] * len(TABLES)
    lsn = int(taken[0].lsn)

    softly = {row["id"]: row for row in _rows(followed, "softly")}
    assert {key for key, row in softly.items() if row["_deleted_at"]} == {1, 2, 4}
    assert softly[1] == next(row for row in before["softly"] if row["id"] == 1)
    assert (softly[5]["n"], softly[600]["v"], softly[4]["v"]) == (8, "new", "v4")

    versions = _rows(followed, "versions")
    assert [row for row in versions if row["id"] in (1, 2, 3, 6)] == [
        row for row in versions if row in before["versions"] and row["id"] in (1, 2, 3, 6)
    ]
    assert len([row for row in versions if row["id"] == 3]) == 2
    by_key = {key: sorted((r["n"], r["_valid_to_lsn"]) for r in versions if r["id"] == key) for key in (4, 5, 600)}
    assert by_key == {4: [(1, lsn)], 5: [(2, lsn), (8, None)], 600: [(1, None)]}

    changes = _rows(followed, "changes")
    assert all(row in changes for row in before["changes"])
    again = [row for row in changes if row["_operation"] == "snapshot" and row["_commit_lsn"] == lsn]
    assert sorted(row["id"] for row in again) == [3, *range(5, 21), 600]
    _run(database, [["UPDATE {t} SET v = 'on' WHERE id = 5", "DELETE FROM {t} WHERE id = 600"]])
    assert [applied.error for applied in followed.sync()] == [None] * len(TABLES)
    assert {row["id"] for row in _rows(followed, "softly") if row["_deleted_at"]} == {1, 2, 4, 600}
    assert [row["v"] for row in _rows(followed, "versions") if row["id"] == 5 and row["_valid_to"] is None] == ["on"]


@pytest.mark.parametrize("engine", [at_night("spark"), "auto"])
def test_columns_are_added_to_rows_that_are_there(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine
) -> None:
    """A default of the source's is no value of a row that the source had no more."""
    followed = _started(spark, database, tmp_path / "lake", engine)
    _run(database, [["DELETE FROM {t} WHERE id = 1", "UPDATE {t} SET n = 7 WHERE id = 2"]])
    assert [applied.error for applied in followed.sync()] == [None] * len(TABLES)
    _run(database, [["ALTER TABLE {t} ADD w int DEFAULT 5", "ALTER TABLE {t} RENAME v TO words"]])
    _run(database, [["INSERT INTO {t} VALUES (700, 'a', 'b', 1, 6)"]])
    assert [applied.error for applied in followed.sync()] == [None] * len(TABLES)

    def rows(name: str) -> list[Row]:
        return list(table_rows(spark, followed.pipeline.lake.table(QualifiedName("public", name))).to_pylist())

    assert Counter(row["w"] for row in rows("softly")) == {5: 19, 6: 1, None: 1}
    assert {row["id"] for row in rows("softly") if row["w"] is None} == {1}
    assert Counter((row["w"], row["_valid_to"] is None) for row in rows("versions")) == {
        (5, True): 19,
        (6, True): 1,
        (None, False): 2,
    }
    assert {row["w"] for row in rows("changes") if row["_operation"] == "snapshot"} == {None}
    assert all("words" in row for name in TABLES for row in rows(name))


@pytest.mark.parametrize("engine", [at_night("spark"), "auto"])
def test_a_default_of_what_ended_in_the_same_windows(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine
) -> None:
    """Whether a row ended before a column was added, or after, no longer matters for its default then."""
    followed = _started(spark, database, tmp_path / "lake", engine)
    _run(database, [["DELETE FROM {t} WHERE id = 1"], ["UPDATE {t} SET n = 7 WHERE id = 2"]])
    _run(database, [["INSERT INTO {t} VALUES (700, 'a', 'b', 1)"], ["DELETE FROM {t} WHERE id = 700"]])
    _run(database, [["ALTER TABLE {t} ADD w int DEFAULT 5"], ["UPDATE {t} SET n = 8 WHERE id = 2"]])
    assert [applied.error for applied in followed.sync()] == [None] * len(TABLES)
    for name, ended in {"softly": "_deleted_at", "versions": "_valid_to"}.items():
        rows = table_rows(spark, followed.pipeline.lake.table(QualifiedName("public", name))).to_pylist()
        assert {row["w"] for row in rows} == {5}
        assert {row["id"] for row in rows if row[ended]} == {1, 700} | ({2} if name == "versions" else set())


@pytest.mark.parametrize("engine", [at_night("spark"), "auto"])
@pytest.mark.parametrize("windows", [1, 2])
def test_a_change_lacks_no_column_that_came_later(
    spark: SparkSession, database: Database, tmp_path: Path, engine: MergeEngine, windows: int
) -> None:
    """It says what it said then, whatever window it lies in: of the new column nothing, nor that it was not sent."""
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, a int)", "INSERT INTO orders SELECT g, g FROM generate_series(1, 5) g"
    )
    orders = QualifiedName("public", "orders")
    pipeline = pipeline_of(database, tmp_path / "lake", engine=engine)
    pipeline = replace(pipeline, tables=(Table(orders, "append"),))
    sync(pipeline, lambda: spark)
    database.execute(
        "INSERT INTO orders VALUES (6, 6)", "UPDATE orders SET id = 20 WHERE id = 2", "DELETE FROM orders WHERE id = 3"
    )
    if windows == 2:
        sync(pipeline, lambda: spark)
    database.execute(
        "ALTER TABLE orders ADD b int DEFAULT 5, ADD c int",
        "UPDATE orders SET id = 40 WHERE id = 4",
        "DELETE FROM orders WHERE id = 5",
    )
    assert sync(pipeline, lambda: spark).errors == ()
    rows = table_rows(spark, pipeline.lake.table(orders)).to_pylist()
    changes = [row for row in rows if row["_operation"] != "snapshot"]
    changes.sort(key=lambda row: (row["_commit_lsn"], row["_ordinal"], row["_operation"] == "update"))
    assert [(row["_operation"], row["id"], row["a"], row["b"], row["c"], row["_not_sent"]) for row in changes] == [
        ("insert", 6, 6, None, None, None),
        ("update_before", 2, None, None, None, ["a"]),
        ("update", 20, 2, None, None, None),
        ("delete", 3, None, None, None, ["a"]),
        ("update_before", 4, None, None, None, ["a", "b", "c"]),
        ("update", 40, 4, 5, None, None),
        ("delete", 5, None, None, None, ["a", "b", "c"]),
    ]


def test_what_a_mode_cannot_keep_is_refused(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "CREATE TABLE keyless (v text)",
        "ALTER TABLE keyless REPLICA IDENTITY FULL",
        "CREATE TABLE taken (id int PRIMARY KEY, _deleted_at timestamptz)",
        "CREATE TABLE fine (id int PRIMARY KEY)",
    )
    pipeline = pipeline_of(database, tmp_path / "lake")
    names = [QualifiedName("public", name) for name in ("fine", "keyless", "taken")]
    assert sync(replace(pipeline, tables=(Table(names[0], "soft_delete"),)), lambda: spark).errors == ()
    report = sync(replace(pipeline, tables=tuple(Table(name, "soft_delete") for name in names)), lambda: spark)
    keyless, taken = sorted(map(str, report.errors))
    assert keyless.startswith("table public.keyless has no key, and mode soft_delete keeps rows by their key: give it")
    assert taken.startswith("table public.taken has columns that mode soft_delete adds itself: _deleted_at: rename")
    database.execute("ALTER TABLE fine ADD _deleted_at int", "INSERT INTO fine VALUES (1, 2)")
    (later,) = sync(replace(pipeline, tables=(Table(names[0], "soft_delete"),)), lambda: spark).errors
    assert str(later).startswith("table public.fine has columns that mode soft_delete adds itself: _deleted_at: rename")
