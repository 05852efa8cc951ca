"""Commits that are remembered are those that the storage has."""

from __future__ import annotations

import pytest
from pyarrow import fs

from spark_jobs.delta import commit
from spark_jobs.delta.commit import LogFolder, SmallCommits
from spark_jobs.storage import Storage
from tests.fixtures.object_store import BUCKET, ObjectStore

FOLDER = f"{BUCKET}/table/_delta_log"


def log_folder(filesystem: fs.FileSystem, path: str = FOLDER) -> LogFolder:
    return LogFolder(filesystem, path, Storage())


def put(filesystem: fs.FileSystem, version: int, *lines: str, folder: str = FOLDER) -> None:
    with filesystem.open_output_stream(f"{folder}/{version:020}.json") as stream:
        stream.write("\n".join(lines).encode())


def test_a_commit_that_is_still_there_is_not_read_again(object_store: ObjectStore) -> None:
    filesystem = object_store.filesystem()
    folder = log_folder(filesystem)
    put(filesystem, 3, '{"txn":{"appId":"a","version":7}}')
    first = folder.commit(3)
    object_store.requests.clear()
    assert folder.commit(3) == first
    assert [request.split()[0] for request in object_store.requests] == ["HEAD"]


def test_a_commit_of_another_table_at_the_same_path_is_read(object_store: ObjectStore) -> None:
    filesystem = object_store.filesystem()
    folder = log_folder(filesystem)
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
    folder = log_folder(filesystem)
    put(filesystem, 0, '{"add":{"path":"%s"}}' % ("x" * commit._MOST_BYTES))
    for version in range(1, 5):
        put(filesystem, version, '{"txn":{"appId":"a","version":7}}')
    for version in range(5):
        assert folder.commit(version) is not None
    object_store.requests.clear()
    for version in range(4, -1, -1):
        assert folder.commit(version) is not None
    read = [request for request in object_store.requests if request.startswith("GET")]
    assert len(read) == 3, read


def test_on_a_local_disk_commits_are_read_each_time(tmp_path: object) -> None:
    filesystem = fs.LocalFileSystem()
    folder = log_folder(filesystem, str(tmp_path))
    put(filesystem, 3, '{"txn":{"appId":"a","version":7}}', folder=str(tmp_path))
    assert folder.commit(3) is not None
    put(filesystem, 3, '{"txn":{"appId":"a","version":8}}', folder=str(tmp_path))
    again = folder.commit(3)
    assert again is not None
    assert again.transactions[0].version == 8
