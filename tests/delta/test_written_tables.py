"""Tables kept open between two writes: whatever others did in between, the next write sees it, or does not commit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import deltalake
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake import Field as DeltaField
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType
from deltalake.transaction import RemoveAction

from spark_jobs.delta.append import append
from spark_jobs.delta.commit import Transaction, time_now
from spark_jobs.delta.data_files import DataFiles, Layout
from spark_jobs.delta.transaction_log import LogFolder, last_checkpoint
from spark_jobs.delta.written_tables import (
    TableToWrite,
    WrittenTables,
    commit_next,
    commit_properties,
    keep_at,
    keep_written,
    open_to_write,
)
from spark_jobs.errors import OvertakenError
from spark_jobs.storage import Location

SCHEMA = pa.schema([pa.field("n", pa.int64())])
LAYOUT = Layout(SCHEMA, statistics=("n",), unique=())
APP = "test"


@pytest.fixture
def path(tmp_path: Path) -> Location:
    """A table with version 0, and one row with this process's commit of version 1."""
    path = Location.of(str(tmp_path / "table"))
    DeltaTable.create(path, SCHEMA)
    written(path, 1)
    return path


def opened(path: Location) -> TableToWrite:
    table = open_to_write(path, path)
    assert table is not None
    return table


def written(path: Location, number: int, table: TableToWrite | None = None) -> None:
    """Append the number as ``land`` does: through the handle, as the transaction of that number."""
    table = table or opened(path)
    commit = commit_properties(Transaction(APP, number))
    append(table.table, path, rows(number), LAYOUT, commit)
    keep_written(table, commit)


def rows(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA)]


def by_another(path: Location, number: int, app: str = "another") -> None:
    """The same by another process."""
    commit = CommitProperties(app_transactions=[deltalake.Transaction(app, number)])
    write_deltalake(path, pa.Table.from_batches(rows(number)), mode="append", commit_properties=commit)


def seen(table: TableToWrite) -> list[int]:
    """What a write through the handle reads of the table."""
    return sorted(table.files.column("min.n").to_pylist())


def test_what_nobody_else_has_written_is_used_as_it_is(path: Location) -> None:
    for number in range(2, 15):
        table = opened(path)
        assert table.is_kept
        assert (table.table.version(), table.log.version) == (number - 1, number - 1)
        assert table.log.transaction_version(APP) == number - 1
        assert seen(table) == list(range(1, number))
        written(path, number, table)


@pytest.mark.parametrize("others", [1, 7, 25])
def test_commits_of_others_are_seen(path: Location, others: int) -> None:
    for number in range(2, 2 + others):
        by_another(path, number)
    table = opened(path)
    assert table.is_kept
    assert table.table.version() == table.log.version == 1 + others
    assert table.log.transaction_version("another") == 1 + others
    assert seen(table) == list(range(1, 2 + others))


def test_a_window_that_another_process_has_landed_is_not_landed_again(path: Location) -> None:
    by_another(path, 2, APP)
    assert opened(path).log.transaction_version(APP) == 2, "so whoever looks before writing does not write"


def test_of_two_that_have_seen_the_same_version_one_commits(path: Location) -> None:
    table = opened(path)
    assert table.is_kept
    by_another(path, 2, APP)  # after this one has looked
    with pytest.raises(CommitFailedError):
        append(table.table, path, rows(2), LAYOUT, commit_properties(Transaction(APP, 2)))
    again = opened(path)
    assert not again.is_kept, "a handle whose commit failed is not used again"
    assert seen(again) == [1, 2]


def test_a_merge_through_a_kept_table_fails_if_anybody_has_committed_since(path: Location) -> None:
    table = opened(path)
    by_another(path, 2)
    commit = commit_properties(Transaction(APP, 2), retries=0)
    merge = table.table.merge(
        pa.table({"n": [1]}), "s.n = t.n", source_alias="s", target_alias="t", commit_properties=commit
    )
    with pytest.raises(CommitFailedError):
        merge.when_matched_delete().execute()


def replaced(path: Location, number: int, table: TableToWrite | None = None) -> None:
    """Put a file with the number in the place of all others, as the transaction of that number."""
    table = table or opened(path)
    files = DataFiles(path, LAYOUT)
    files.write_all(rows(number))
    every = table.files.to_pylist()
    removals = [RemoveAction(each["path"], True, time_now(), each["size_bytes"], {}) for each in every]
    commit = commit_properties(Transaction(APP, number), retries=0)
    commit_next(table, [*files.actions, *removals], commit)


@pytest.mark.parametrize("by_spark", [False, True], ids=["by this process", "one by Spark in between"])
def test_files_that_are_replaced_in_commits_of_our_own(path: Location, *, by_spark: bool) -> None:
    table: TableToWrite | None = None
    for number in range(2, 15):  # with checkpoints
        replaced(path, number, table)
        table = opened(path)
        assert table.is_kept
        assert seen(table) == [number]
        assert table.log.transaction_version(APP) == number
        if by_spark:
            keep_at(table, next(table.log.commits()).known)
            table = None
        newly_opened = DeltaTable(path)
        assert newly_opened.transaction_version(APP) == newly_opened.version() == number
        assert newly_opened.to_pyarrow_table().column("n").to_pylist() == [number]
    assert last_checkpoint(path) is not None


OTHERS: dict[str, Callable[[Location], object]] = {
    "rows added": lambda path: by_another(path, 50),
    "rows deleted": lambda path: DeltaTable(path).delete("n >= 0"),
    "all replaced": lambda path: write_deltalake(path, pa.table({"n": [51]}), mode="overwrite"),
    "another column": lambda path: DeltaTable(path).alter.add_columns(DeltaField("text", PrimitiveType("string"))),
    "a property": lambda path: DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"}),
    "nothing": DeltaTable,
}


@pytest.mark.parametrize("since", [1, 2, 9, 12])
@pytest.mark.parametrize("other", OTHERS)
def test_what_another_writer_commits_after_commits_of_our_own_is_seen(path: Location, other: str, since: int) -> None:
    for number in range(2, 2 + since):
        replaced(path, number) if number < 4 else commit_one_more(path, number)
    OTHERS[other](path)
    table, now = opened(path), DeltaTable(path)
    assert table.is_kept
    assert table.log.version == now.version()
    assert listed_names(table.files) == listed_names(pa.table(now.get_add_actions(flatten=True)))
    assert table.table.schema() == now.schema()
    assert table.table.metadata().configuration == now.metadata().configuration


def commit_one_more(path: Location, number: int) -> None:
    table, files = opened(path), DataFiles(path, LAYOUT)
    files.write_all(rows(number))
    commit_next(table, files.actions, commit_properties(Transaction(APP, number), retries=0))


def listed_names(files: pa.Table) -> list[str]:
    return sorted(files.column("path").to_pylist())


def test_a_commit_of_our_own_is_refused_if_anybody_has_committed_since(path: Location) -> None:
    table = opened(path)
    by_another(path, 2)
    with pytest.raises(OvertakenError):
        replaced(path, 3, table)
    assert seen(opened(path)) == [1, 2]


def test_a_table_that_only_takes_rows_refuses_to_lose_any(path: Location) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(CommitFailedError, match="append-only"):
        replaced(path, 2)
    assert seen(opened(path)) == [1]


def test_the_log_is_cleaned_up_after_every_hundredth_commit(path: Location) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    for number in (98, 99):
        replaced(path, number)
    DeltaTable(path).create_checkpoint()
    assert LogFolder.of(path).has_commit(1)
    replaced(path, 100)
    assert not LogFolder.of(path).has_commit(1)
    assert seen(opened(path)) == [100]


@pytest.mark.parametrize("versions", [1, 2, 3, 9])
def test_a_table_that_was_deleted_and_made_anew_is_opened_anew(path: Location, versions: int) -> None:
    """Whether the new one has fewer versions, the same number or more."""
    written(path, 2)
    shutil.rmtree(path)
    DeltaTable.create(path, SCHEMA)
    for number in range(100, 99 + versions):
        by_another(path, number, APP)
    table = opened(path)
    assert not table.is_kept
    assert table.table.version() == versions - 1
    assert seen(table) == list(range(100, 99 + versions)) if versions > 1 else not table.table.file_uris()


def test_an_older_copy_that_was_put_back_is_opened_anew(path: Location, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "copy")
    written(path, 2)
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "copy", path)
    table = opened(path)
    assert not table.is_kept
    assert (table.table.version(), seen(table)) == (1, [1])


def test_a_table_that_is_gone_is_not_there(path: Location) -> None:
    shutil.rmtree(path)
    assert open_to_write(path, path) is None


def test_a_table_that_was_replaced_in_place_has_its_new_columns_and_files(path: Location) -> None:
    new = pa.table({"n": [7], "text": ["x"]})
    write_deltalake(path, new, mode="overwrite", schema_mode="overwrite")
    table = opened(path)
    assert [column.name for column in table.table.schema().fields] == ["n", "text"]
    assert seen(table) == [7]


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_log_that_was_cleaned_up(path: Location, after: int, kept: int) -> None:
    """By others, after a checkpoint that covers ``after`` commits of theirs; ``kept`` commits before it are left."""
    for number in range(2, 7):
        written(path, number)
    for number in range(7, 7 + after):
        by_another(path, number)
    DeltaTable(path).create_checkpoint()
    newest = 6 + after
    for version in range(newest - kept):
        (Path(path) / "_delta_log" / f"{version:020}.json").unlink()
    table = opened(path)
    assert seen(table) == list(range(1, newest + 1))
    commit = commit_properties(Transaction(APP, newest + 1))
    append(table.table, path, rows(newest + 1), LAYOUT, commit)
    keep_written(table, commit)
    assert seen(opened(path)) == list(range(1, newest + 2))
    assert sorted(DeltaTable(path).to_pyarrow_table().column("n").to_pylist()) == list(range(1, newest + 2))


def test_two_threads_never_share_a_handle(path: Location) -> None:
    together = Barrier(2)

    def take() -> TableToWrite:
        together.wait()
        return opened(path)

    for number in range(2, 22):
        written(path, number)
        with ThreadPoolExecutor(2) as pool:
            first, second = (future.result() for future in [pool.submit(take), pool.submit(take)])
        assert first.table is not second.table
        assert sorted([first.is_kept, second.is_kept]) == [False, True]


def test_a_table_with_many_files_is_not_kept(path: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WrittenTables, "most_files", 2)
    written(path, 2)
    written(path, 3)
    written(path, 4)
    assert not opened(path).is_kept


def test_the_tables_that_were_written_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WrittenTables, "most", 2)
    lake = Location.of(str(tmp_path))
    paths = [lake / name for name in "abc"]
    for each in paths:
        DeltaTable.create(each, SCHEMA)
        written(each, 1)
    assert [opened(each).is_kept for each in paths] == [False, True, True]
