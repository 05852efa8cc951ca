"""The log after retention and compaction: what is kept is as it was, and windows land as before."""

from __future__ import annotations

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_jobs.change_log.log import ChangeLog, catalogue_rows, marker_row
from spark_jobs.change_log.retention import changes_of, compact_log_in_passing, keep_log_small, remove_changes
from spark_jobs.change_log.window_marker import CatalogueSeen
from spark_jobs.delta import upkeep
from spark_jobs.delta.upkeep import Upkeep
from spark_jobs.errors import LakeError, OvertakenError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.schema.fingerprint import Fingerprint
from tests.change_log.identity import IDENTITY
from tests.change_log.windows import marker, window

_DAY = timedelta(days=1)
_MONTH = timedelta(days=30)
_ALL = 1 << 40


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    """Of the windows 0 to 11: two on each of six days, the newest today."""
    made = ChangeLog(str(tmp_path / "change_log"))
    made.create()
    for ordinal in range(12):
        made.land(IDENTITY, ordinal, window(ordinal))
    for checkpoint in Path(made.path, "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()  # it has the real times
    for ordinal in range(12):
        _append_then(made, version=ordinal + 1, days_ago=5 - ordinal // 2)
    return made


def _append_then(log: ChangeLog, version: int, days_ago: int) -> None:
    """As if the commit had been made on that day."""
    commit = Path(log.path, "_delta_log", f"{version:020}.json")
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["modificationTime"] = int((time.time() - days_ago * _DAY.total_seconds()) * 1000)
    commit.write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines))


def _kept(log: ChangeLog, age: timedelta = _MONTH, needed: int = _ALL) -> Upkeep:
    last = log.checkpoint()
    assert last is not None
    return keep_log_small(log, last, age, needed)


def _rows(log: ChangeLog, first: int, last: int) -> list[dict[str, object]]:
    rows = log.read([16384], first, last).to_pylist()
    return sorted(rows, key=lambda row: (row["window"], row["ordinal"], row["kind"]))


def test_windows_of_a_day_come_together_and_stay_as_they_were(log: ChangeLog) -> None:
    markers, rows = log.markers(), _rows(log, 0, 11)
    done = _kept(log)
    assert (done.files_before, done.files_after, done.overdue) == (12, 6, False)
    assert log.markers() == markers
    assert _rows(log, 0, 11) == rows
    assert log.checkpoint() == markers[-1]
    assert log.first_window() == markers[0]
    assert [fact.window for fact in log.facts(3, 5)] == [3, 4, 5]
    assert log.land(IDENTITY, 12, window(12))
    assert not log.land(IDENTITY, 12, window(12))
    assert log.markers(10) == (markers[11], marker(12))
    version = DeltaTable(log.path).version()
    again = _kept(log)
    assert again.files_after == 6
    assert _rows(log, 0, 11) == rows
    assert DeltaTable(log.path).transaction_version(IDENTITY.app_id) == 12
    assert DeltaTable(log.path).version() > version


def test_old_windows_go_by_whole_files_and_what_is_needed_stays(log: ChangeLog) -> None:
    rows = _rows(log, 4, 11)
    assert _kept(log, timedelta(days=3, hours=12), needed=1).overdue
    assert log.first_window() == marker(1)
    assert not _kept(log, timedelta(days=3, hours=12)).overdue
    assert log.first_window() == marker(4)
    assert [each.ordinal for each in log.markers()] == list(range(4, 12))
    assert _rows(log, 0, 11) == rows
    # however old it is, the last window is the log's own checkpoint
    _kept(log, timedelta(0))
    assert log.checkpoint() == marker(11)
    assert log.land(IDENTITY, 12, window(12))
    assert log.markers()[-1] == marker(12)


def test_fingerprints_that_the_last_window_rests_on_outlive_their_window(log: ChangeLog) -> None:
    fingerprint = Fingerprint.of("word", json.dumps([16384, "public", "t", [], True, [], [], []]))
    looked = replace(marker(12), catalogue=CatalogueSeen(word="w", window=12, horizon=0))
    log.land(IDENTITY, 12, [catalogue_rows(12, Lsn(1200), [fingerprint]), marker_row(looked)])
    log.land(IDENTITY, 13, [marker_row(replace(marker(13), catalogue=looked.catalogue))])
    for _ in range(2):
        _kept(log, timedelta(0))
        assert log.first_window() == log.checkpoint() == log.markers()[0]
        assert log.fingerprints(12) == (fingerprint,)
    log.land(IDENTITY, 14, window(14))
    _kept(log, timedelta(0))
    assert log.fingerprints(12) == (), "window 14 rests on none"
    assert log.markers() == (marker(14),)


def test_two_processes_at_once_and_a_window_that_is_landed_meanwhile(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced, interrupted = upkeep._replace, [True]

    def after_others(*arguments: object, **named: object) -> object:
        if interrupted:
            interrupted.clear()
            with ThreadPoolExecutor(1) as other:
                other.submit(_kept, log).result()
                assert other.submit(log.land, IDENTITY, 12, window(12)).result()
        return replaced(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(upkeep, "_replace", after_others)
    with pytest.raises(OvertakenError, match="run it again"):
        _kept(log)
    assert [each.ordinal for each in log.markers()] == list(range(13))
    assert pa.table(DeltaTable(log.path).get_add_actions(flatten=True)).num_rows == 7
    _kept(log)
    assert [each.ordinal for each in log.markers()] == list(range(13))
    assert len(_rows(log, 0, 12)) == 13 * 4


def _files(log: ChangeLog) -> int:
    return len(DeltaTable(log.path).file_uris())


def test_a_log_that_nobody_maintains_stays_in_few_files(log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_IN_PASSING_EVERY", 5)
    rows = _rows(log, 0, 11)
    for ordinal in range(12, 36):
        assert log.land(IDENTITY, ordinal, window(ordinal))
        compact_log_in_passing(log, ordinal)
    assert [each.ordinal for each in log.markers()] == list(range(36))
    assert log.checkpoint() == log.markers(34)[0] == marker(35)
    assert _rows(log, 0, 11) == rows
    assert len(_rows(log, 0, 35)) == 36 * 4
    # windows 0 to 5 were out of its reach, 6 to 9 are of two days, the others of today
    assert _files(log) == 6 + 2 + 1


def test_a_failed_compaction_in_passing_is_caught_up_and_no_error(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "_IN_PASSING_EVERY", 5)
    with monkeypatch.context() as broken:
        broken.setattr(upkeep, "_replace", _disk_is_full)
        for ordinal in range(12, 16):
            log.land(IDENTITY, ordinal, window(ordinal))
            compact_log_in_passing(log, ordinal)
    assert "the disk is full" in caplog.text
    files = _files(log)
    for ordinal in range(16, 21):
        log.land(IDENTITY, ordinal, window(ordinal))
        compact_log_in_passing(log, ordinal)
    assert _files(log) < files
    assert [each.ordinal for each in log.markers()] == list(range(21))


def _disk_is_full(*_: object, **__: object) -> None:
    raise LakeError("the disk is full")


def test_single_changes_are_removed_and_with_them_every_file_that_held_them(log: ChangeLog) -> None:
    _kept(log)  # two windows a file
    markers, rows = log.markers(), _rows(log, 0, 11)
    ages = {file.modified for file in log.files.all()}

    def of_window_3(found: pa.RecordBatch) -> pa.Array:
        return pc.and_(pc.equal(found.column("window"), 3), changes_of([16384], found))

    half_written = Path(log.path, "part-00000-x.parquet")
    half_written.write_bytes(b"PAR1")
    with pytest.raises(LakeError, match="may be half written"):
        remove_changes(log, of_window_3, [16384])
    os.utime(half_written, (0, 0))
    landing = Path(log.path, "part-00001-x.parquet")
    shutil.copy(Path(log.path, log.files.all()[0].path), landing)  # of another process, without such a change
    remove_changes(log, of_window_3, [16384])
    left = {file.path for file in log.files.all()}
    assert {file.name for file in Path(log.path).glob("*.parquet")} >= {*left, landing.name}
    assert not half_written.exists()
    held = [each for each in rows if each["window"] == 3 and str(each["kind"]) in "IUD"]
    assert held
    assert _rows(log, 0, 11) == [each for each in rows if each not in held]
    assert (log.markers(), {file.modified for file in log.files.all()}) == (markers, ages)
    for file in Path(log.path).glob("*.parquet"):
        found = pq.read_table(file)
        assert not any(pc.any(of_window_3(batch)).as_py() for batch in found.to_batches())
    assert log.land(IDENTITY, 12, window(12))
