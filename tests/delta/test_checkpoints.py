"""Checkpoints: every table gets them, however few commits a process makes, and not all in one sync."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.delta.append import after_commit
from spark_jobs.delta.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINT_PROPERTY, Checkpoints
from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.transaction_log import last_checkpoint
from spark_jobs.delta.written_tables import commit_properties, keep_written, open_to_write
from spark_jobs.storage import Location

SCHEMA = pa.schema([pa.field("n", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Location:
    return Location.of(str(tmp_path))


def as_another_process(path: Location) -> Location:
    """The same table, of which nothing is known yet."""
    return Location.of(str(path))


def table_at(path: Location, interval: int | None = CHECKPOINT_INTERVAL) -> Location:
    DeltaTable.create(path, SCHEMA, configuration={} if interval is None else {CHECKPOINT_PROPERTY: str(interval)})
    return path


def newest_checkpoint(path: Location) -> int:
    known = last_checkpoint(path)
    return 0 if known is None else known.version


def write(path: Location, number: int) -> None:
    opened = open_to_write(path, path)
    assert opened is not None
    commit = commit_properties(Transaction("test", number))
    write_deltalake(
        opened.table,
        pa.table({"n": [number]}),
        mode="append",
        commit_properties=commit,
        post_commithook_properties=after_commit(commit),
    )
    keep_written(opened, commit)


def checkpoints_of(path: Location) -> list[int]:
    return sorted(int(file.name[:20]) for file in (Path(path) / "_delta_log").glob("*.checkpoint*.parquet"))


@pytest.mark.parametrize("commits_of_a_process", [1, 2, 3, 50])
def test_a_table_never_lacks_a_checkpoint_for_long(lake: Location, commits_of_a_process: int) -> None:
    """Three tables in lockstep, as a sync of one table writes them."""
    paths = [table_at(lake / name) for name in "abc"]
    for number in range(1, 50):
        if number % commits_of_a_process == 0:
            lake = as_another_process(lake)
            paths = [lake / name for name in "abc"]
        for path in paths:
            write(path, number)
            assert number - newest_checkpoint(path) <= 2 * CHECKPOINT_INTERVAL
    assert all(len(checkpoints_of(path)) >= 4 for path in paths)


def test_one_sync_writes_one_checkpoint(lake: Location) -> None:
    paths = [table_at(lake / name) for name in "abc"]
    syncs: Counter[int] = Counter()
    for number in range(1, 60):
        before = sum(len(checkpoints_of(path)) for path in paths)
        for path in paths:
            write(path, number)
        syncs[number] = sum(len(checkpoints_of(path)) for path in paths) - before
    assert max(syncs.values()) == 1
    assert syncs.total() >= 3 * (60 // CHECKPOINT_INTERVAL - 1)


@pytest.mark.parametrize("ahead", range(CHECKPOINT_INTERVAL))
def test_none_is_written_where_spark_writes_one(lake: Location, ahead: int) -> None:
    """Between the commits to two tables, Spark makes one to a third, which has so many more."""
    paths = [table_at(lake / name) for name in "ab"]
    beside, before = lake.storage.memory(Checkpoints), 0
    for number in range(1, 40):
        write(paths[0], number)
        beside.note_commit_of_spark("of spark", number + ahead)
        write(paths[1], number)
        written = sum(len(checkpoints_of(path)) for path in paths)
        assert written - before <= (0 if (number + ahead) % CHECKPOINT_INTERVAL == 0 else 1)
        before = written
    assert before >= 2 * (40 // CHECKPOINT_INTERVAL - 2)


def test_many_tables_of_spark_put_none_off_for_long(lake: Location) -> None:
    path = table_at(lake / "a")
    for number in range(1, 60):
        for version in range(CHECKPOINT_INTERVAL):
            path.storage.memory(Checkpoints).note_commit_of_spark(f"of spark {version}", version)
        write(path, number)
        assert number - newest_checkpoint(path) <= 2 * CHECKPOINT_INTERVAL


@pytest.mark.parametrize(("interval", "versions"), [(5, [5, 10, 15, 20]), (7, [7, 14]), (None, [10, 20])])
def test_the_interval_of_the_table_counts(lake: Location, interval: int | None, versions: list[int]) -> None:
    path = table_at(lake / "a", interval)
    for number in range(1, 22):
        write(path, number)
    assert checkpoints_of(path) == versions


def test_a_checkpoint_that_cannot_be_written_fails_no_commit(lake: Location, caplog: pytest.LogCaptureFixture) -> None:
    path = table_at(lake / "a", 2)
    write(path, 1)
    Path(path, "_delta_log", f"{2:020}.checkpoint.parquet").mkdir()
    write(path, 2)
    write(path, 3)
    assert "has no checkpoint of version 2" in caplog.text
    assert DeltaTable(path).version() == 3
    for number in range(4, 10):
        write(path, number)
    assert newest_checkpoint(path) > 2
