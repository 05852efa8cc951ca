"""What waits in the spool comes back in order, from memory and from files, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.capture.transaction_spool import SPOOL_SCHEMA, TransactionSpool
from spark_jobs.errors import SpoolError
from tests.fixtures.disks import small_disk


def batch(*messages: bytes) -> pa.RecordBatch:
    columns = [pa.array(messages, pa.binary()), pa.array([7] * len(messages)), pa.array([-1] * len(messages))]
    return pa.RecordBatch.from_arrays(columns, schema=SPOOL_SCHEMA)


def messages(spool: TransactionSpool, xid: int) -> list[bytes]:
    return [message for part in spool.take(xid) for message in part.column("data").to_pylist()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.arrows"))


@pytest.mark.parametrize("memory", [0, 300, 1 << 20])
def test_order_is_kept_in_memory_and_in_files(folder: Path, memory: int) -> None:
    with TransactionSpool(memory) as spool:
        for number in range(20):
            spool.append(number % 3, batch(b"%d" % number, b"x" * number))
        assert bool(files(folder)) == (memory < 1 << 20)
        for xid in (2, 0):
            expected = [each for number in range(xid, 20, 3) for each in (b"%d" % number, b"x" * number)]
            assert messages(spool, xid) == expected
            assert messages(spool, xid) == [], "taken once"
        spool.drop(1)
        spool.drop(9)
        assert files(folder) == []
    assert list(folder.iterdir()) == []


def test_the_largest_goes_to_its_file(folder: Path) -> None:
    with TransactionSpool(10_000) as spool:
        spool.append(1, batch(b"small"))
        spool.append(2, batch(b"x" * 9_000))
        assert files(folder) == []
        spool.append(1, batch(b"y" * 2_000))
        assert files(folder) == ["2.arrows"]
        assert messages(spool, 1) == [b"small", b"y" * 2_000]


def test_an_error_leaves_no_file_behind(folder: Path) -> None:
    def stopped() -> None:
        with TransactionSpool(0) as spool:
            spool.append(1, batch(b"x"))
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        stopped()
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_one_clear_line_and_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append_until_full(spool: TransactionSpool) -> None:
        for number in range(40):
            spool.append(2, batch(b"%d" % number * 90_000))

    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setattr("tempfile.tempdir", str(disk.folder))
        with TransactionSpool(0) as spool:
            spool.append(1, batch(b"x" * 9_000))
            disk.spoil()
            with pytest.raises(SpoolError) as full:
                append_until_full(spool)
            disk.mend()
        assert str(full.value).startswith(f"a streamed transaction cannot be kept in {disk.folder}: {disk.said}: make ")
        assert "\n" not in str(full.value)
        assert list(disk.folder.iterdir()) == []
