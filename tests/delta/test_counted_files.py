"""Files of a table whose rows are numbered: the newest commits tell what the list of all files would tell."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from spark_jobs.delta import counted_files
from spark_jobs.delta.append import append
from spark_jobs.delta.counted_files import CountedFiles
from spark_jobs.delta.data_files import Layout
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.storage import Location

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string())])
LAYOUT = Layout(SCHEMA, statistics=("n",), unique=())


@pytest.fixture
def counted(tmp_path: Path) -> CountedFiles:
    path = Location.of(str(tmp_path / "counted"))
    DeltaTable.create(path, SCHEMA)
    return CountedFiles(path, "n", SCHEMA)


def appended(counted: CountedFiles, *numbers: int) -> None:
    batch = pa.RecordBatch.from_pylist([{"n": number, "text": str(number)} for number in numbers], schema=SCHEMA)
    commit = CommitProperties(app_transactions=[Transaction("test", numbers[-1])])
    append(DeltaTable(counted.path), counted.path, [batch], LAYOUT, commit)


def numbers(counted: CountedFiles, after: int | None) -> list[int]:
    files = counted.of_last_append() if after is None else counted.after(after)
    return sorted(counted.dataset(files).to_table().column("n").to_pylist())


@pytest.mark.parametrize("most", [200, 3])
def test_newest_commits_and_the_list_of_all_files_agree(
    counted: CountedFiles, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(counted_files, "_MOST_COMMITS", most)
    assert numbers(counted, None) == numbers(counted, -1) == []
    for number in range(12):
        appended(counted, 2 * number, 2 * number + 1)
    assert numbers(counted, None) == [22, 23]
    for after in (-1, 0, 1, 15, 20, 21, 22):
        last_of_file = after - (after + 1) % 2
        assert numbers(counted, after) == list(range(last_of_file + 1, 24))
    assert numbers(counted, 23) == []


@pytest.mark.parametrize("held", [0, 1 << 20])
@pytest.mark.parametrize("least", [0, 3, 7, 20, 21, 22])
def test_rows_of_many_files_are_those_of_a_filter(
    counted: CountedFiles, monkeypatch: pytest.MonkeyPatch, least: int, held: int
) -> None:
    """Where all, most, few or none of a row group meet the condition; of large files and of small ones."""
    monkeypatch.setattr(counted_files, "_SMALL_BYTES", held)
    for first in (0, 5, 15):
        appended(counted, *range(first, first + 6))
    files, text = counted.after(-1), pc.field("text")
    for condition in (pc.field("n") >= least, (pc.field("n") >= least) & (text != "18"), text == "none"):
        expected = counted.dataset(files).to_table(["text", "n"], filter=condition)
        assert counted.rows(files, condition, ["text", "n"]) == expected


def test_rows_of_small_files_are_read_once(counted: CountedFiles) -> None:
    appended(counted, 1, 2, 3)
    files, condition = counted.of_last_append(), pc.field("n") > 1
    expected = counted.dataset(files).to_table(["text"], filter=condition)
    assert counted.rows(files, condition, ["text"]) == expected
    Path(counted.path, files[0].path).unlink()
    assert counted.rows(files, condition, ["text"]) == expected
    assert counted.rows(files, pc.field("n") == 1).to_pylist() == [{"n": 1, "text": "1"}]


def test_files_that_were_put_together_count_once(counted: CountedFiles) -> None:
    for number in range(6):
        appended(counted, number)
    DeltaTable(counted.path).optimize.compact()
    assert numbers(counted, None) == numbers(counted, 2) == [0, 1, 2, 3, 4, 5]
    assert len(counted.all()) == 1
    appended(counted, 6)
    assert numbers(counted, None) == numbers(counted, 5) == [6]
    assert numbers(counted, 4) == [0, 1, 2, 3, 4, 5, 6]


def test_after_log_clean_up_the_list_of_all_files_is_read(counted: CountedFiles) -> None:
    for number in range(6):
        appended(counted, number)
    DeltaTable(counted.path).create_checkpoint()
    for version in range(6):
        Path(counted.path, "_delta_log", f"{version:020}.json").unlink()
    assert numbers(counted, 4) == [5]
    assert numbers(counted, 1) == [2, 3, 4, 5]
    Path(counted.path, "_delta_log", f"{6:020}.json").unlink()
    assert numbers(counted, None) == [5]


@pytest.mark.parametrize("behind", range(12))
def test_the_newest_version_is_the_last_without_a_gap(counted: CountedFiles, behind: int) -> None:
    """As many commits behind the last checkpoint."""
    appended(counted, 0)
    DeltaTable(counted.path).create_checkpoint()
    folder = Path(counted.path, "_delta_log")
    for version in range(2, 2 + behind):
        (folder / f"{version:020}.json").write_text('{"commitInfo":{}}')
    log = TransactionLog.open(counted.path)
    assert log is not None
    assert log.version == 1 + behind


def test_an_outdated_last_checkpoint_is_harmless(counted: CountedFiles) -> None:
    """Clean-up has removed it and what followed, up to a newer one."""
    folder = Path(counted.path, "_delta_log")
    appended(counted, 0)
    DeltaTable(counted.path).create_checkpoint()
    old = (folder / "_last_checkpoint").read_bytes()
    for number in range(1, 8):
        appended(counted, number)
    DeltaTable(counted.path).create_checkpoint()
    (folder / "_last_checkpoint").write_bytes(old)
    for version in range(5):
        (folder / f"{version:020}.json").unlink()
    assert numbers(counted, None) == [7]


def test_a_commit_that_is_no_json_is_an_error(counted: CountedFiles) -> None:
    appended(counted, 0)
    for content in ("", "{", '{"add":{"path":"a"\n'):
        Path(counted.path, "_delta_log", f"{1:020}.json").write_text(content)
        with pytest.raises(ValueError, match="is damaged"):
            counted.of_last_append()
