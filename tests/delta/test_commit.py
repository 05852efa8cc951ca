"""Commits that are remembered are those that the storage has."""

from __future__ import annotations

import pytest
from pyarrow import fs

from spark_jobs.delta import transaction_log
from spark_jobs.delta.commit import commit_name
from spark_jobs.delta.transaction_log import LogFolder, SmallCommits
from spark_jobs.storage import Location
from tests.fixtures.object_store import BUCKET, ObjectStore

FOLDER = f"{BUCKET}/table/_delta_log"


def log_folder(table: str = f"s3://{BUCKET}/table") -> LogFolder:
    return LogFolder.of(Location.of(table))


def put(filesystem: fs.FileSystem, version: int, *lines: str, folder: str = FOLDER) -> None:
    with filesystem.open_output_stream(f"{folder}/{version:020}.json") as stream:
        stream.write("\n".join(lines).encode())


def test_a_commit_that_is_still_there_is_not_read_again(object_store: ObjectStore) -> None:
    filesystem = object_store.filesystem()
    folder = log_folder()
    put(filesystem, 3, '{"txn":{"appId":"a","version":7}}')
    first = folder.commit(3)
    object_store.requests.clear()
    assert folder.commit(3) is first
    assert [request.split()[0] for request in object_store.requests] == ["GET"], "if it has another ETag"


def test_a_commit_of_another_table_at_the_same_path_is_read(object_store: ObjectStore) -> None:
    filesystem = object_store.filesystem()
    folder = log_folder()
    put(filesystem, 3, '{"txn":{"appId":"a","version":7}}')
    assert folder.commit(3) is not None
    put(filesystem, 3, '{"txn":{"appId":"a","version":8}}')  # of the same length, and most likely in the same second
    again = folder.commit(3)
    assert again is not None
    assert again.transactions[0].version == 8
    filesystem.delete_file(f"{FOLDER}/{3:020}.json")
    assert folder.commit(3) is None


def test_large_commits_are_not_remembered_and_small_ones_up_to_a_number(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SmallCommits, "most", 2)
    filesystem = object_store.filesystem()
    folder = log_folder()
    put(filesystem, 0, '{"add":{"path":"%s"}}' % ("x" * transaction_log._MOST_BYTES))
    for version in range(1, 5):
        put(filesystem, version, '{"txn":{"appId":"a","version":7}}')
    for version in range(5):
        assert folder.commit(version) is not None
    remembered = folder.table.storage.memory(SmallCommits)
    assert [version for version in range(5) if folder.file(commit_name(version)) in remembered] == [3, 4]


def test_on_a_local_disk_commits_are_read_each_time(tmp_path: object) -> None:
    filesystem, folder = fs.LocalFileSystem(), log_folder(str(tmp_path))
    filesystem.create_dir(folder.path)
    put(filesystem, 3, '{"txn":{"appId":"a","version":7}}', folder=folder.path)
    assert folder.commit(3) is not None
    put(filesystem, 3, '{"txn":{"appId":"a","version":8}}', folder=folder.path)
    again = folder.commit(3)
    assert again is not None
    assert again.transactions[0].version == 8
