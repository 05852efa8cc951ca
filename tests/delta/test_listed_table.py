"""What is removed from a table's folder, and what stays: the versions that its history covers can be read."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import PostCommitHookProperties
from pyarrow import fs

from spark_jobs.delta.history import History
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.errors import OvertakenError
from spark_jobs.storage import Location
from tests.fixtures.object_store import BUCKET, ObjectStore

MONTH = History(timedelta(days=30), timedelta(days=31))
# when each version was made, in days before now, and the versions that have a checkpoint
MADE = (100, 60, 40, 20, 5)
CHECKPOINTS = (1, 3)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Each version replaces all rows by its own number."""
    path = tmp_path / "table"
    for version, days in enumerate(MADE):
        write_deltalake(
            str(path),
            pa.table({"n": [version]}),
            mode="overwrite",
            configuration=MONTH.properties,
            # by themselves, these remove commits of versions that the history covers
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
        commit = path / "_delta_log" / f"{version:020}.json"
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in lines:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = int((time.time() - days * 86400) * 1000)
        commit.write_text("\n".join(map(json.dumps, lines)))
        if version in CHECKPOINTS:
            DeltaTable(str(path)).create_checkpoint()
        for file in path.rglob("*"):
            if file.stat().st_mtime > time.time() - 3600:
                _age(file, days)
    return path


def test_what_no_version_of_the_last_month_needs_is_removed(table: Path) -> None:
    data = _data(table)
    stray, young = _file(table / "part-killed.parquet", 31), _file(table / "part-unfinished.parquet", 29)
    hidden, inside = _file(table / "_ours" / "x.parquet", 99), _file(table / "ab" / "part-killed.parquet", 99)
    checksums = {name: _file(table / f".{name}.crc", 99) for name in (*data, stray.name)}
    log = _file(table / "_delta_log" / f".{0:020}.json.crc", 99)
    (of_2, of_3, of_4) = (_files_of(table, version) for version in (2, 3, 4))

    listed = _read(table)
    assert (listed.version, listed.checkpoint) == (4, 3)
    assert listed.remove_expired(MONTH) == len(data) - 3 + 2
    assert _data(table) == of_2 | of_3 | of_4 | {young.name}
    assert hidden.exists()
    assert not inside.exists()
    assert {name for name, file in checksums.items() if file.exists()} == of_2 | of_3 | of_4
    for version in (2, 3, 4):
        assert DeltaTable(str(table), version).to_pyarrow_table().column("n").to_pylist() == [version]
    commits = sorted(file.name for file in (table / "_delta_log").glob("*.json"))
    assert commits == [f"{version:020}.json" for version in (1, 2, 3, 4)]
    assert not log.exists()
    assert _read(table).remove_expired(MONTH) == 0


def test_a_table_that_nobody_has_changed_for_long_can_be_read(table: Path) -> None:
    for file in table.rglob("*"):
        _age(file, 400)
    # the removals are still young
    assert _read(table).remove_expired(MONTH) == 2
    assert DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist() == [4]
    assert DeltaTable(str(table), 3).to_pyarrow_table().column("n").to_pylist() == [3]


def test_it_is_read_like_deltalake_reads_it(table: Path) -> None:
    for version in range(5, 20):
        write_deltalake(str(table), pa.table({"n": [version]}), mode="append" if version % 3 else "overwrite")
        listed, opened = _read(table), DeltaTable(str(table))
        assert listed.version == opened.version() == version
        assert {*listed.files} == {Path(uri).name for uri in opened.file_uris()}
        assert not {*listed.files} & {*listed.removed}
        assert listed.metadata["schemaString"] == opened.schema().to_json()
        if version == 7:
            opened.alter.set_table_properties({"note": "a"}, raise_if_not_exists=False)
            version += 1
            break
    assert (
        _read(table).configuration
        == DeltaTable(str(table)).metadata().configuration
        == {"note": "a", **MONTH.properties}
    )


def test_of_two_commits_of_one_version_the_second_is_refused(table: Path) -> None:
    ours, theirs = _read(table), _read(table)
    assert theirs.with_properties({"by": "them"}).version == 5
    with pytest.raises(OvertakenError):
        ours.with_properties({"by": "us"})
    assert ours.newest().with_properties({"and": "us"}).configuration.keys() > {"by", "and"}
    assert DeltaTable(str(table)).metadata().configuration == _read(table).configuration


def test_more_than_commits_and_a_checkpoint_is_not_read(table: Path) -> None:
    (table / "_delta_log" / f"{4:020}.json").rename(table / "_delta_log" / f"{5:020}.json")
    with pytest.raises(FileNotFoundError):
        _read(table)


def test_an_object_store_deletes_many_files_with_one_request(object_store: ObjectStore) -> None:
    path, files = Location.of(f"s3://{BUCKET}/a table"), object_store.filesystem()
    options = {"allow_http": "true"}
    write_deltalake(path, pa.table({"n": [1]}), storage_options=options)
    for number in range(20):
        with files.open_output_stream(f"{BUCKET}/a table/ab/part-{number}.parquet") as stream:
            stream.write(b"killed")
    listed = ListedTable.read(path)
    assert listed is not None
    object_store.requests.clear()
    assert listed.remove_expired(History(timedelta(0), timedelta(0))) == 20
    assert len(object_store.requests) == 1, object_store.requests
    left = files.get_file_info(fs.FileSelector(f"{BUCKET}/a table", recursive=True))
    assert len([file for file in left if file.type == fs.FileType.File]) == 2
    assert DeltaTable(path, storage_options=options).to_pyarrow_table().num_rows == 1


def _read(path: Path) -> ListedTable:
    listed = ListedTable.read(Location.of(str(path)))
    assert listed is not None
    return listed


def _data(table: Path) -> set[str]:
    return {file.name for file in table.glob("part-*.parquet")}


def _files_of(table: Path, version: int) -> set[str]:
    return {Path(uri).name for uri in DeltaTable(str(table), version).file_uris()}


def _file(path: Path, days: float) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    return _age(path, days)


def _age(path: Path, days: float) -> Path:
    then = time.time() - days * 86400
    os.utime(path, (then, then))
    return path
