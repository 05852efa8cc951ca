"""A table rebuilt from before a range, and one as of an LSN, against copies of the source taken at that LSN."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_assets.cli import replay as replay_command
from cdc_assets.cli.invocation import run
from spark_jobs.capture.capture import capture
from spark_jobs.errors import ConfigurationError, GapError, LakeError, OvertakenError, SchemaChangeError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.as_of import table_as_of
from spark_jobs.replay.aside import Build
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.replay.replay import replay
from spark_jobs.run import Run
from tests.cli.command import DSN_VARIABLE, configured
from tests.fixtures.no_spark import no_spark
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import lake_rows
from tests.fixtures.servers import Database
from tests.spark.crash_here import Crash, crash
from tests.spark.followed_pipeline import Followed, synced
from tests.spark.scenarios import SCENARIOS, make_item

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ITEM, OTHER = QualifiedName("public", "item"), QualifiedName("public", "Other 100%")
TABLES = ["public.item", 'public."Other 100%"']
_STEPS = ("mixed changes, values kept", "rows that move with their documents, and swap", "truncated in the middle")
COLUMNS = ["id", "name", "price", "at", "doc"]


@dataclass(frozen=True)
class Copy:
    """What the source table held at ``lsn``, in a quiet moment."""

    lsn: Lsn
    rows: list[tuple[Any, ...]]


def copied(followed: Followed) -> Copy:
    number = followed.database.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'copy%'")[0][0]
    followed.database.execute(f"CREATE TABLE copy{number} AS SELECT * FROM item")
    lsn = Lsn.parse(str(followed.database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0]))
    return Copy(lsn, followed.source_rows(QualifiedName("public", f"copy{number}"), COLUMNS))


@pytest.fixture
def followed(spark: SparkSession, database: Database, tmp_path: Path) -> Followed:
    """Snapshotted."""
    make_item(database)
    database.execute('CREATE TABLE "Other 100%" (id int PRIMARY KEY, "a b" text)')
    database.execute("INSERT INTO \"Other 100%\" VALUES (1, 'one')")
    made = Followed(spark, database, pipeline_of(database, tmp_path / "lake", *TABLES), (ITEM, OTHER))
    synced(made)
    return made


def rows_at(followed: Followed, path: str) -> list[tuple[Any, ...]]:
    table = lake_rows(followed.spark, path)
    assert table.column_names == COLUMNS
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def as_of(followed: Followed, lsn: Lsn, into: Path) -> list[tuple[Any, ...]]:
    built = table_as_of(Run(followed.pipeline, lambda: followed.spark), ITEM, lsn, str(into))
    rows = rows_at(followed, str(into))
    assert (built.lsn, built.rows) == (lsn, len(rows))
    assert not (into / "_building").exists()
    return rows


def test_rebuilt_and_as_of_equal_copies_of_the_source(
    followed: Followed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Key changes, TRUNCATE, values in TOAST; LSNs inside a window; a table whose path is percent-encoded."""
    mixed, moved, truncated = (SCENARIOS[name] for name in _STEPS)
    followed.database.execute(*mixed)
    synced(followed)
    first = followed.markers[-1]
    followed.database.execute(*moved, 'UPDATE "Other 100%" SET "a b" = NULL')
    after_moves = copied(followed)
    followed.database.execute(*truncated)
    after_truncate = copied(followed)
    followed.database.execute("INSERT INTO item (id, name) VALUES (77, 'last')")
    synced(followed)
    last, before = followed.markers[-1], followed.state(ITEM)
    assert (last.ordinal, before.version) == (first.ordinal + 1, 2), "one window, one commit"

    assert as_of(followed, after_truncate.lsn, tmp_path / "after-truncate") == after_truncate.rows
    command = configured(tmp_path, followed.database.dsn, followed.database.name, TABLES)
    monkeypatch.setenv(DSN_VARIABLE, followed.database.dsn)
    monkeypatch.setattr(replay_command, "lazy_session", lambda _: nullcontext(lambda: followed.spark))
    into = ["--at", str(after_moves.lsn), "--into", str(tmp_path / "after-moves"), "--table", "item"]
    call = ["replay", "--config", str(command.configuration), *into, "--json"]
    capfd.readouterr()
    assert run(call) == 0
    assert json.loads(capfd.readouterr().out)["rows"] == len(after_moves.rows)
    assert rows_at(followed, str(tmp_path / "after-moves")) == after_moves.rows
    assert run(call) == 2, "it holds something now"
    assert followed.state(ITEM) == before, "the pipeline's own table is untouched"

    # a crash right before the one commit: the table is what it was
    with monkeypatch.context() as patched:
        patched.setattr(Build, "put_in_place", crash)
        with pytest.raises(Crash):
            rebuild(Run(followed.pipeline, lambda: followed.spark), first.window.hi, last.window.hi, [ITEM])
    assert followed.state(ITEM) == before
    followed.assert_equal()

    # rows that went wrong in the range are made good
    followed.spark.sql(f"UPDATE delta.`{followed.pipeline.lake.table(ITEM)}` SET name = 'wrong'")
    report = rebuild(Run(followed.pipeline, lambda: followed.spark), first.window.hi, last.window.hi)
    outcomes = {table.name: (table.outcome, table.rebuilt_from) for table in report.tables}
    assert report.errors == ()
    assert outcomes == {ITEM: ("rebuilt", 1), OTHER: ("rebuilt", 0)}
    assert (report.lo, report.hi) == (last.window.lo, last.window.hi)
    followed.assert_equal()
    since, cut = followed.state(ITEM), latest_cut(followed.pipeline.lake)
    assert (since.ordinal, since.commits, since.generation) == (before.ordinal, before.commits + 1, before.generation)
    assert cut is not None
    shown = cut.table(ITEM)
    assert shown is not None
    assert shown.version == since.version == report.tables[0].delta_version
    assert not list(Path(followed.pipeline.lake.path, "_staging").glob("*/*/*"))
    followed.database.execute("UPDATE item SET id = id + 1000, name = 'after'")
    synced(followed)
    followed.assert_equal()
    assert "left to Spark" not in caplog.text, "what Spark must do is known before it is tried"


def test_windows_that_are_not_applied_are_applied_and_others_are_recognised(followed: Followed, tmp_path: Path) -> None:
    start = followed.markers[-1].window.hi
    followed.database.execute("UPDATE item SET name = 'one'", 'UPDATE "Other 100%" SET "a b" = \'two\'')
    capture(followed.pipeline)
    middle = followed.markers[-1]
    followed.database.execute("UPDATE item SET name = 'two', id = -id")
    capture(followed.pipeline)
    last = followed.markers[-1]
    assert middle.ordinal < last.ordinal

    report = replay(Run(followed.pipeline, lambda: followed.spark), start, Lsn(middle.window.hi - 1), [ITEM])
    (item,) = report.tables
    count = report.last - report.first + 1
    assert (item.outcome, item.already_applied, item.applied, item.changes.updates) == ("applied", 0, count, 100)
    assert (report.last, report.hi) == (middle.ordinal, middle.window.hi), "whole windows"
    assert followed.state(OTHER).version == 0
    mixed = replay(Run(followed.pipeline, lambda: followed.spark), start, last.window.hi)
    had = {table.name: (table.outcome, table.already_applied) for table in mixed.tables}
    assert had == {ITEM: ("applied", count), OTHER: ("applied", 0)}
    followed.assert_equal()
    version = followed.state(ITEM).version
    old = replay(Run(followed.pipeline, no_spark), start, middle.window.hi)
    assert {table.outcome for table in old.tables} == {"already applied"}
    command = configured(tmp_path, followed.database.dsn, followed.database.name, TABLES)
    ends = ("--from", str(start), "--to", str(last.window.hi))
    told = command("replay", *ends, "--json", without_java=True)
    assert told.exit_code == 0, told.stderr
    assert [table["outcome"] for table in told.document["tables"]] == ["already applied"] * 2
    assert followed.state(ITEM).version == version


def test_what_cannot_be_is_refused_and_nothing_is_changed(followed: Followed, tmp_path: Path) -> None:
    pipeline, spark = followed.pipeline, followed.spark
    start = followed.markers[0].window.lo
    followed.database.execute("UPDATE item SET name = 'one'")
    synced(followed)
    end = followed.markers[-1].window.hi
    before = followed.state(ITEM)
    for lo, hi, error in ((Lsn(1), end, GapError), (start, Lsn(end + 1), GapError), (end, start, ConfigurationError)):
        with pytest.raises(error):
            replay(Run(pipeline, no_spark), lo, hi)
        with pytest.raises(error):
            rebuild(Run(pipeline, no_spark), lo, hi)
    with pytest.raises(ConfigurationError, match="not replicated"):
        rebuild(Run(pipeline, no_spark), start, end, [QualifiedName("public", "nobody")])
    with pytest.raises(GapError, match="it ends at"):
        table_as_of(Run(pipeline, no_spark), ITEM, Lsn(end + 1), str(tmp_path / "none"))
    with pytest.raises(LakeError, match="the oldest version"):
        table_as_of(Run(pipeline, no_spark), ITEM, start, str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()

    # another writer was quicker than a rebuild that has read the state before
    landed = LandedWindows.of(pipeline)
    snapshot = list(landed.past_states(ITEM))[-1].state
    build = Build(Run(pipeline, lambda: spark), landed, snapshot, landed.after(snapshot.ordinal, before.ordinal))
    followed.database.execute("UPDATE item SET name = 'two'")
    synced(followed)
    with pytest.raises(OvertakenError):
        build.put_in_place(
            before,
            build.provenance(before),
            lambda own: own.range(0).write.format("delta").mode("overwrite").save(pipeline.lake.table(ITEM)),
            failed="was not rebuilt",
        )
    followed.assert_equal()

    # rows that were changed without an event: no log leads through that window
    followed.database.execute("ALTER TABLE item ALTER price TYPE numeric(10,2) USING price + 1")
    capture(pipeline)
    changed_at = followed.markers[-1].window.hi
    synced(followed)
    followed.assert_equal()
    with pytest.raises(SchemaChangeError, match="needs a re-snapshot: it was rewritten by DDL"):
        table_as_of(Run(pipeline, no_spark), ITEM, changed_at, str(tmp_path / "none"))
    report = rebuild(Run(pipeline, lambda: spark), start, changed_at, [ITEM])
    assert [table.outcome for table in report.tables] == ["in its snapshot"]
    followed.assert_equal()
