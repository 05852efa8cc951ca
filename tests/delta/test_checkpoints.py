"""Checkpoints: every table gets them, however few commits a process makes, and not all in one sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.delta import checkpoints, written_tables
from spark_jobs.delta.append import after_commit
from spark_jobs.delta.checkpoints import CHECKPOINT_INTERVAL
from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.transaction_log import last_checkpoint
from spark_jobs.delta.written_tables import commit_properties, keep_written, open_to_write

SCHEMA = pa.schema([pa.field("n", pa.int64())])


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    end_process()
    yield
    end_process()


def end_process() -> None:
    """From here on, nothing is known of the tables, as in a process that was just started."""
    written_tables._written.clear()
    checkpoints._last.clear()
    checkpoints._commits_since = checkpoints._COMMITS_BETWEEN


def table_at(path: Path, **configuration: str | None) -> str:
    DeltaTable.create(str(path), SCHEMA, configuration=configuration)
    return str(path)


def write(path: str, number: int) -> None:
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


def checkpoints_of(path: str) -> list[int]:
    return sorted(int(file.name[:20]) for file in (Path(path) / "_delta_log").glob("*.checkpoint*.parquet"))


@pytest.mark.parametrize("commits_of_a_process", [1, 2, 3, 50])
def test_a_table_never_lacks_a_checkpoint_for_long(tmp_path: Path, commits_of_a_process: int) -> None:
    """Three tables in lockstep, as a sync of one table writes them."""
    paths = [table_at(tmp_path / name) for name in "abc"]
    for number in range(1, 50):
        if number % commits_of_a_process == 0:
            end_process()
        for path in paths:
            write(path, number)
            assert number - (last_checkpoint(path) or 0) <= 2 * CHECKPOINT_INTERVAL
    assert all(len(checkpoints_of(path)) >= 4 for path in paths)


def test_one_sync_writes_one_checkpoint(tmp_path: Path) -> None:
    paths = [table_at(tmp_path / name) for name in "abc"]
    syncs: Counter[int] = Counter()
    for number in range(1, 60):
        before = sum(len(checkpoints_of(path)) for path in paths)
        for path in paths:
            write(path, number)
        syncs[number] = sum(len(checkpoints_of(path)) for path in paths) - before
    assert max(syncs.values()) == 1
    assert syncs.total() >= 3 * (60 // CHECKPOINT_INTERVAL - 1)


def test_the_interval_of_the_table_counts(tmp_path: Path) -> None:
    path = table_at(tmp_path / "a", **{"delta.checkpointInterval": "5"})
    for number in range(1, 22):
        write(path, number)
    assert checkpoints_of(path) == [5, 10, 15, 20]


def test_a_checkpoint_that_cannot_be_written_fails_no_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = table_at(tmp_path / "a", **{"delta.checkpointInterval": "2"})
    write(path, 1)
    (tmp_path / "a" / "_delta_log" / f"{2:020}.checkpoint.parquet").mkdir()
    write(path, 2)
    write(path, 3)
    assert "has no checkpoint of version 2" in caplog.text
    assert DeltaTable(path).version() == 3
    for number in range(4, 10):
        write(path, number)
    assert (last_checkpoint(path) or 0) > 2
