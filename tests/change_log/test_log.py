"""The change log as a Delta table: one commit per window, once, in any path; no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.errors import DecodeError, LakeError
from tests.change_log.identity import IDENTITY
from tests.change_log.windows import FACTS, marker, window


@pytest.fixture(params=["lake", "Odd.näh er", "file://"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> ChangeLog:
    """In a plain folder, in one with an odd name, and by URI with percent-encoded parts."""
    path = (tmp_path / "a ä c").as_uri() if request.param == "file://" else str(tmp_path / request.param)
    made = ChangeLog(f"{path}/change_log")
    assert made.checkpoint() is None
    assert made.markers() == ()
    made.create()
    made.create()
    assert made.checkpoint() is None
    return made


def test_windows_land_once_with_their_markers(log: ChangeLog) -> None:
    for ordinal in range(3):
        assert log.land(IDENTITY, ordinal, window(ordinal))
        assert log.checkpoint() == marker(ordinal)
    version = DeltaTable(log.path).version()
    assert not log.land(IDENTITY, 2, window(2))
    assert not log.land(IDENTITY, 0, window(0))
    assert DeltaTable(log.path).version() == version == 3
    assert log.markers() == (marker(0), marker(1), marker(2))
    assert log.markers(after_ordinal=1) == (marker(2),)
    assert DeltaTable(log.path).history(1)[0]["window"] == "2"


@pytest.mark.parametrize("version", range(4))
def test_a_log_that_was_set_back_is_refused_until_it_is_restored(log: ChangeLog, version: int) -> None:
    """By Delta's RESTORE, which leaves transaction identifiers as they are."""
    for ordinal in range(4):
        log.land(IDENTITY, ordinal, window(ordinal))
    DeltaTable(log.path).restore(version)
    assert log.checkpoint() == (marker(version - 1) if version else None)
    for refused in (lambda: log.require_not_set_back(IDENTITY), lambda: log.land(IDENTITY, version, window(version))):
        with pytest.raises(LakeError, match="no longer holds window 3, its newest: somebody has restored") as error:
            refused()
        assert error.value.hint.startswith(f"RESTORE delta.`{log.path}` TO VERSION AS OF 4; else move {log.path} away")
    DeltaTable(log.path).restore(4)
    assert log.markers() == tuple(map(marker, range(4)))
    log.require_not_set_back(IDENTITY)
    assert log.land(IDENTITY, 4, window(4))
    assert log.checkpoint() == marker(4)


def test_reading_by_relation_and_window(log: ChangeLog) -> None:
    for ordinal in range(1, 5):
        log.land(IDENTITY, ordinal, window(ordinal, relid=16384 + ordinal % 2))
    table = log.read([16385], 2, 4, ["window", "kind", "relid"])
    assert table.column_names == ["window", "kind", "relid"]
    assert set(table.column("window").to_pylist()) == {3}
    assert log.read([1], 1, 4).num_rows == 0
    # the facts at hand are those of 16384, which is in the even windows
    assert [fact.window for fact in log.facts(1, 4)] == [2, 4]
    assert log.facts(1, 4, [16385]) == ()
    [fact] = log.facts(3, 4, [16384])
    assert (fact.window, fact.relid, fact.version, fact.facts) == (4, 16384, 42, FACTS)


@pytest.mark.parametrize("written", [b'{"ordinal":1,"later":true}', b"not JSON", b'{"window":["0/10","x"]}'])
def test_a_marker_of_a_later_release_is_refused_in_one_line(log: ChangeLog, written: bytes) -> None:
    assert log.land(IDENTITY, 0, window(0))
    row = {"window": 1, "commit_lsn": 200, "ordinal": -1, "kind": "W", "data": written}
    assert log.land(IDENTITY, 1, [pa.RecordBatch.from_pylist([row], schema=CHANGE_LOG_SCHEMA)])
    with pytest.raises(LakeError, match=r"marker in .* is not understood: a newer version") as refused:
        log.checkpoint()
    assert refused.value.hint.startswith("use the version that has written to this lake last")


def test_error_of_the_producer_comes_out_and_nothing_lands(log: ChangeLog) -> None:
    log.land(IDENTITY, 0, window(0))

    def failing() -> Iterator[pa.RecordBatch]:
        yield window(1)[0]
        raise DecodeError("window 1: not understood", hint="look")

    with pytest.raises(DecodeError, match=r"^window 1: not understood: look$"):
        log.land(IDENTITY, 1, failing())
    assert log.checkpoint() == marker(0)
    assert log.land(IDENTITY, 1, window(1))


def test_an_error_after_the_commit_removes_no_file(log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that cannot be written, or an answer that is lost: the window is landed all the same."""
    log.land(IDENTITY, 0, window(0))
    commit = DeltaTable.create_write_transaction

    def answer_lost(*arguments: Any, **named: Any) -> None:
        commit(*arguments, **named)
        raise DeltaError("the answer is lost")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", answer_lost)
        with pytest.raises(LakeError, match="the answer is lost"):
            log.land(IDENTITY, 1, window(1))
    assert log.checkpoint() == marker(1)
    assert log.read([16384], 1, 1).num_rows > 0
    assert not log.land(IDENTITY, 1, window(1))


def test_concurrent_writer_of_the_same_slot_is_a_typed_error(log: ChangeLog) -> None:
    log.land(IDENTITY, 0, window(0))

    def overtaken() -> Iterator[pa.RecordBatch]:
        with ThreadPoolExecutor(1) as other:  # the writer's own thread cannot start a second write
            assert other.submit(log.land, IDENTITY, 1, window(1)).result()
        yield from window(1, count=5)

    with pytest.raises(LakeError, match="another process writes this change log") as caught:
        log.land(IDENTITY, 1, overtaken())
    assert "\n" not in str(caught.value)
    assert log.read([16384], 1, 1).num_rows == 4


def test_log_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    missing = ChangeLog(str(tmp_path / "nothing"))
    with pytest.raises(LakeError, match="there is no change log"):
        missing.land(IDENTITY, 1, window(1))
    with pytest.raises(LakeError, match="there is no change log"):
        missing.read([1], 0, 1)
    assert missing.facts(0, 1) == ()
    assert not (tmp_path / "nothing").exists()


def test_path_that_the_library_cannot_open_is_refused(tmp_path: Path) -> None:
    for path in (str(tmp_path / "a%41"), (tmp_path / "a%41").as_uri()):
        with pytest.raises(LakeError, match="holds a '%'"):
            ChangeLog(path).create()
    assert list(tmp_path.iterdir()) == []


def test_statistics_cover_the_leading_columns_only(log: ChangeLog) -> None:
    log.land(IDENTITY, 1, window(1))
    statistics = pa.table(DeltaTable(log.path).get_add_actions(flatten=True)).column_names
    assert {"max.window", "max.commit_lsn", "max.relid"} <= set(statistics)
    assert not {"max.data", "max.version"} & set(statistics)
