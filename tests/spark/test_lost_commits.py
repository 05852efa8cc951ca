"""A commit of ours that another writer's has replaced, as two Spark drivers on S3 can do (``S3SingleDriverLogStore``).

The version is there, and the number of our next commit fits the table's log: only the commit itself is another one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyarrow import fs

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.retention import keep_log_small
from spark_jobs.configuration import Lake, MergeEngine, Pipeline
from spark_jobs.delta.files import lake_filesystem
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.errors import BreakError
from spark_jobs.lake.cuts import latest_cut
from spark_jobs.lake.latest_cut import show_in_latest_cut
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Location
from spark_jobs.sync import SyncReport, sync
from spark_jobs.tables import ledger
from tests.at_night import at_night
from tests.fixtures.object_store import BUCKET, ObjectStore
from tests.fixtures.pipelines import pipeline_of
from tests.fixtures.row_compare import compare
from tests.fixtures.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

NAMES = tuple(QualifiedName("public", f"t{number}") for number in range(3))
BUSY, IDLE, _ = NAMES


@dataclass(frozen=True)
class _Followed:
    database: Database
    pipeline: Pipeline
    spark: SparkSession

    def sync(self) -> SyncReport:
        report = sync(self.pipeline, lambda: self.spark)
        for error in report.errors:
            raise error
        return report

    def change(self, name: QualifiedName) -> None:
        self.database.execute(
            f"UPDATE {name.relname} SET n = n + 1", f"INSERT INTO {name.relname} SELECT count(*) + 1, 0 FROM {name}"
        )

    def state(self, name: QualifiedName) -> tuple[int, int]:
        """Number and version of our last commit, as the latest cut has them."""
        cut = latest_cut(self.pipeline.lake)
        table = cut.table(name) if cut else None
        assert table is not None
        assert table.last_commit is not None
        return table.commits, table.last_commit.version

    def assert_equal(self) -> None:
        for compared in compare(self.spark, self.pipeline, NAMES):
            assert compared.equal, compared


def _start(database: Database, lake: Path, spark: SparkSession, engine: MergeEngine) -> _Followed:
    for name in NAMES:
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)", f"INSERT INTO {name} VALUES (1, 0)")
    pipeline = replace(pipeline_of(database, lake, *map(str, NAMES)), merge_engine=engine)
    followed = _Followed(database, pipeline, spark)
    followed.sync()
    return followed


def _replaced(path: Location, *, older: int = 0) -> int:
    """Put a commit of others in the place of our newest one, or of one that is so much ``older``, as a PUT without a
    condition does. Returns its version."""
    filesystem, folder = lake_filesystem(path / "_delta_log")
    log = TransactionLog.open(path)
    assert log is not None
    log = log.at(log.version - older)
    table = next(action for commit in log.commits() for action in commit.actions("metaData"))
    actions: list[dict[str, object]] = [
        {"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES", "txnId": str(uuid4())}},
        {"metaData": {**table, "configuration": {**table["configuration"], "by": "others"}}},
    ]
    with filesystem.open_output_stream(f"{folder}/{log.version:020}.json") as stream:
        stream.write("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode())
    of_hadoop = f"{folder}/.{log.version:020}.json.crc"  # with which Hadoop checks local files
    if filesystem.get_file_info(of_hadoop).type == fs.FileType.File:
        filesystem.delete_file(of_hadoop)
    return log.version


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "has lost commit" in record.getMessage()]


@pytest.mark.parametrize("engine", ["auto", at_night("spark")])
def test_an_idle_table_that_has_lost_a_commit_gets_it_again_in_its_turn(
    database: Database, tmp_path: Path, spark: SparkSession, engine: MergeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    followed = _start(database, tmp_path / "lake", spark, engine)
    for name in (IDLE, BUSY):
        followed.change(name)
        followed.sync()
    number, version = followed.state(IDLE)
    assert _replaced(followed.pipeline.lake.table(IDLE)) == version
    for _ in NAMES:  # then it was the turn of each
        followed.change(BUSY)
        followed.sync()
    assert followed.state(IDLE) == (number, version + 1)
    assert [f"has lost commit {number} " in line for line in _lines(caplog)] == [True]
    followed.assert_equal()


def test_an_idle_table_that_was_written_last_gets_it_again_with_the_next_sync(
    database: Database, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Two tables are: of more, others are looked at with each minute."""
    followed, written = _start(database, tmp_path / "lake", spark, "auto"), NAMES[:2]
    for name in written:
        followed.change(name)
    followed.sync()
    followed.database.execute("CREATE TABLE elsewhere (id int)")
    followed.sync()  # its cut has no new commit
    before = {name: followed.state(name) for name in written}
    for name in written:
        _replaced(followed.pipeline.lake.table(name))
    followed.sync()
    assert {name: followed.state(name) for name in written} == {
        name: (number, version + 1) for name, (number, version) in before.items()
    }
    assert len(_lines(caplog)) == len(written)
    followed.assert_equal()


@pytest.mark.parametrize("engine", ["auto", at_night("spark")])
def test_what_a_table_that_changes_again_has_lost_is_applied_with_the_next_change(
    database: Database, tmp_path: Path, spark: SparkSession, engine: MergeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    followed = _start(database, tmp_path / "lake", spark, engine)
    followed.change(IDLE)
    followed.sync()
    number, version = followed.state(IDLE)
    _replaced(followed.pipeline.lake.table(IDLE))
    followed.change(IDLE)
    followed.sync()
    assert followed.state(IDLE) == (number, version + 1)
    assert _lines(caplog)
    followed.assert_equal()


def test_on_an_object_store_all_are_checked_if_the_cut_is_old(
    database: Database,
    tmp_path: Path,
    spark: SparkSession,
    object_store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = _start(database, tmp_path / "lake", spark, "auto")
    moved = f"{BUCKET}/{database.name}"
    fs.copy_files(local.pipeline.lake.path, moved, destination_filesystem=object_store.filesystem())
    followed = replace(local, pipeline=replace(local.pipeline, lake=Lake(f"s3a://{moved}")))
    for name in NAMES:
        followed.change(name)
    followed.sync()
    before = {name: followed.state(name) for name in NAMES}
    for name in NAMES:
        _replaced(followed.pipeline.lake.table(name))
    monkeypatch.setattr(ledger, "_OLD", timedelta(0))
    followed.sync()
    assert {name: followed.state(name) for name in NAMES} == {
        name: (number, version + 1) for name, (number, version) in before.items()
    }
    back = tmp_path / "back"
    fs.copy_files(moved, str(back), source_filesystem=object_store.filesystem())
    replace(local, pipeline=replace(local.pipeline, lake=Lake(str(back)))).assert_equal()


def test_a_table_whose_lost_windows_are_no_longer_in_the_log_is_read_again(
    database: Database, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = _start(database, tmp_path / "lake", spark, "auto")
    followed.change(IDLE)
    followed.sync()
    followed.change(BUSY)
    followed.sync()
    log = ChangeLog(followed.pipeline.lake.change_log)
    last = log.checkpoint()
    assert last is not None
    keep_log_small(log, last, timedelta(0), last.ordinal)
    _replaced(followed.pipeline.lake.table(IDLE))
    monkeypatch.setattr(ledger, "_OLD", timedelta(0))
    followed.change(BUSY)
    report = followed.sync()
    assert [taken.name for taken in report.snapshots] == [IDLE]
    assert "does not hold window" in report.snapshots[0].reason
    followed.assert_equal()


def test_maintenance_does_not_show_a_table_that_has_lost_a_commit(
    database: Database, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut would say that the table shows its LSN, and what was lost would never be applied."""
    followed = _start(database, tmp_path / "lake", spark, "auto")
    followed.change(IDLE)
    followed.sync()
    _replaced(followed.pipeline.lake.table(IDLE))
    before, last = latest_cut(followed.pipeline.lake), ChangeLog(followed.pipeline.lake.change_log).checkpoint()
    assert last is not None
    show_in_latest_cut(followed.pipeline.lake, last.identity, NAMES)
    assert latest_cut(followed.pipeline.lake) == before
    monkeypatch.setattr(ledger, "_OLD", timedelta(0))
    followed.sync()
    followed.assert_equal()


def test_a_window_that_the_change_log_has_lost_is_never_skipped(
    database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """Nobody else should write this table; one who does so beside a sync may replace a commit of it too."""
    followed = _start(database, tmp_path / "lake", spark, "auto")
    for name in (IDLE, BUSY):
        followed.change(name)
        capture(followed.pipeline)
    _replaced(followed.pipeline.lake.change_log, older=1)
    report = followed.sync()
    assert {taken.name for taken in report.snapshots} == set(NAMES), "any of them may have changed in that window"
    followed.assert_equal()
    _replaced(followed.pipeline.lake.change_log)
    followed.change(IDLE)
    with pytest.raises(BreakError):
        followed.sync()
