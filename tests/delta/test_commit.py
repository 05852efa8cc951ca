"""Commits that are held in memory are those that the storage has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyarrow import fs

from spark_jobs.delta import commit
from spark_jobs.delta.commit import read_commit
from tests.fixtures.object_store import BUCKET, ObjectStore

FOLDER = f"{BUCKET}/table/_delta_log"


@pytest.fixture(autouse=True)
def _nothing_held() -> Iterator[None]:
    commit._held.clear()
    yield
    commit._held.clear()


def put(filesystem: fs.FileSystem, version: int, *lines: str, folder: str = FOLDER) -> None:
    with filesystem.open_output_stream(f"{folder}/{version:020}.json") as stream:
        stream.write("\n".join(lines).encode())


def test_a_commit_that_is_still_there_is_not_read_again(object_store: ObjectStore) -> None:
    filesystem = object_store.filesystem()
    put(filesystem, 3, '{"txn":{"appId":"a","version":7}}')
    first = read_commit(filesystem, FOLDER, 3)
    object_store.requests.clear()
    assert read_commit(filesystem, FOLDER, 3) == first
    assert [request.split()[0] for request in object_store.requests] == ["HEAD"]


def test_a_commit_of_another_table_at_the_same_path_is_read(object_store: ObjectStore) -> None:
    filesystem = object_store.filesystem()
    put(filesystem, 3, '{"txn":{"appId":"a","version":7}}')
    assert read_commit(filesystem, FOLDER, 3) is not None
    put(filesystem, 3, '{"txn":{"appId":"a","version":8}}')  # of the same length, and most likely in the same second
    again = read_commit(filesystem, FOLDER, 3)
    assert again is not None
    assert again.transactions[0].version == 8
    filesystem.delete_file(f"{FOLDER}/{3:020}.json")
    assert read_commit(filesystem, FOLDER, 3) is None


def test_large_commits_are_not_held_and_small_ones_up_to_a_number(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "_MOST_HELD", 2)
    filesystem = object_store.filesystem()
    put(filesystem, 0, '{"add":{"path":"%s"}}' % ("x" * commit._MOST_BYTES))
    for version in range(1, 5):
        put(filesystem, version, '{"txn":{"appId":"a","version":7}}')
    for version in range(5):
        assert read_commit(filesystem, FOLDER, version) is not None
    assert [held.commit.version for held in commit._held.values()] == [3, 4]


def test_on_a_local_disk_commits_are_read_each_time(tmp_path: object) -> None:
    filesystem = fs.LocalFileSystem()
    put(filesystem, 3, '{"txn":{"appId":"a","version":7}}', folder=str(tmp_path))
    assert read_commit(filesystem, str(tmp_path), 3) is not None
    put(filesystem, 3, '{"txn":{"appId":"a","version":8}}', folder=str(tmp_path))
    again = read_commit(filesystem, str(tmp_path), 3)
    assert again is not None
    assert again.transactions[0].version == 8
