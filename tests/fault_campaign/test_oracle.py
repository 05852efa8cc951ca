"""The campaign would notice: each thing that it looks for is planted once. And one seed is one campaign."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.capture.capture import capture
from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.window_marker import RelationCounts, WindowMarker
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.prepare import prepare
from tests.change_log.identity import IDENTITY
from tests.fault_campaign.checks import check, gaps
from tests.fault_campaign.complaints import foreign_tracebacks, told, unclear
from tests.fault_campaign.load import transactions
from tests.fault_campaign.plan import KINDS, plans
from tests.fixtures.pipelines import MakePipeline
from tests.fixtures.servers import Database
from tests.spark.commit_chain import OurCommit, faults


def test_one_seed_is_one_campaign() -> None:
    assert plans(50, 7) == plans(50, 7)
    assert plans(50, 7) != plans(50, 8)
    assert {plan.kind for plan in plans(len(KINDS), 7)} == set(KINDS)
    assert transactions(3, random.Random("a")) == transactions(3, random.Random("a"))  # noqa: S311
    assert transactions(3, random.Random("a")) != transactions(3, random.Random("b"))  # noqa: S311


@pytest.mark.postgres
def test_a_slot_ahead_of_the_log_and_a_gap_in_it(database: Database, make_pipeline: MakePipeline) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY)")
    pipeline = make_pipeline("public.item")
    prepare(pipeline)
    for number in range(3):
        database.execute(f"INSERT INTO item VALUES ({number})")
        capture(pipeline)
    assert check(database, pipeline, 0) == (3, [])
    markers = ChangeLog(pipeline.lake.change_log).markers()
    assert gaps(markers) == []
    assert len(gaps([*markers[:2], *markers[3:]])) == 1
    assert (
        len(gaps([*markers[:3], replace(markers[3], window=replace(markers[3].window, lo=markers[0].window.lo))])) == 1
    )
    database.execute("INSERT INTO item VALUES (9)")
    database.execute(
        f"SELECT pg_replication_slot_advance('{pipeline.source.slot}', pg_current_wal_flush_lsn())",
    )
    _, (found,) = check(database, pipeline, 0)
    assert "ahead of the log" in found


def commit(version: int, first: int, last: int, *, takes_windows: bool = True) -> OurCommit:
    generation = Lsn(450).key
    return OurCommit(version, "app", version, generation, 1, first, last, takes_windows, f"run-{version}", 0.0)


def test_a_window_that_was_applied_twice_is_found_and_columns_are_none() -> None:
    snapshot, later = commit(0, 2, 2, takes_windows=False), commit(2, 3, 5)
    assert faults([snapshot, commit(1, 2, 2, takes_windows=False), later], ()) == []
    # windows 3 and 4 held nothing of the table
    assert faults([snapshot, commit(1, 4, 4, takes_windows=False), commit(2, 5, 5)], ()) == []
    (twice,) = faults([snapshot, later, commit(3, 5, 6)], ())
    assert "windows 5 to 5 twice" in twice
    (astray,) = faults([snapshot, later, commit(3, 3, 3, takes_windows=False)], ())
    assert "columns were written at window 3, the table was at 5" in astray


def test_a_window_that_was_left_out_is_found_unless_the_snapshot_shows_it() -> None:
    """The snapshot is of LSN 450, and window n begins at 100 n: the log was behind when it was taken."""
    changed = (RelationCounts(1, "public", "t"),)
    markers = [WindowMarker(n, Window(Lsn(100 * n), Lsn(100 * n + 100)), IDENTITY, changed) for n in range(9)]
    snapshot = commit(0, 2, 2, takes_windows=False)
    assert faults([snapshot, commit(1, 5, 6)], markers) == []
    (left_out,) = faults([snapshot, commit(1, 6, 7)], markers)
    assert "windows [5] left out" in left_out


def test_windows_whose_changes_cancel_out_need_no_commit() -> None:
    def left_out(*windows: ChangeCounts) -> list[str]:
        markers = [
            WindowMarker(n, Window(Lsn(100 * n), Lsn(100 * n + 100)), IDENTITY, (RelationCounts(1, "s", "t", changes),))
            for n, changes in enumerate(windows, start=5)
        ]
        after = commit(1, 5 + len(windows), 9)
        return faults([commit(0, 4, 4, takes_windows=False), after], markers)

    inserted, deleted = ChangeCounts(inserts=7), ChangeCounts(deletes=7)
    assert left_out(ChangeCounts(inserts=7, updates=2, deletes=7)) == left_out(inserted, deleted) == []
    for windows in ([inserted], [inserted, ChangeCounts(deletes=6)], [ChangeCounts(updates=1)]):
        assert len(left_out(*windows)) == 1
    assert len(left_out(inserted, replace(deleted, truncates=1))) == 1


_OURS = """Traceback (most recent call last):
  File "/home/me/spark_jobs/sync.py", line 3, in sync
    work()
  File "/usr/lib/python3.11/shutil.py", line 7, in work
OSError: [Errno 28] No space left on device
"""
_FOREIGN = """Traceback (most recent call last):
  File "/venv/site-packages/py4j/clientserver.py", line 535, in send_command
    answer = read()
ConnectionResetError: [Errno 104] Connection reset by peer

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/venv/site-packages/py4j/java_gateway.py", line 1038, in send_command
py4j.protocol.Py4JNetworkError: Error while sending or receiving
"""
_FINE = "told: run-1: the disk is full: make room\ncannot connect; trying again in 0.8 s\n"


@pytest.mark.parametrize(
    "line",
    [
        "told: run-7: public.item: windows 3 to 4 were not applied: Py4JError",
        "told: run-7: work stopped: java.lang.IllegalStateException: see there",
    ],
)
def test_an_error_that_is_no_clear_line_is_found(tmp_path: Path, line: str) -> None:
    errors = tmp_path / "clients.log"
    errors.write_text(f"{_FINE}{line}\n{line}\n{_FOREIGN}")
    assert unclear(errors) == [line]
    assert told(errors)["the disk is full: make room"] == 1


def test_a_traceback_through_our_files_is_found_and_others_are_counted(tmp_path: Path) -> None:
    errors = tmp_path / "clients.log"
    errors.write_text(f"{_FINE}{_FOREIGN}{_OURS}{_FOREIGN}")
    (found,) = unclear(errors)
    assert found.startswith("OSError: [Errno 28] No space left on device, raised through File")
    assert "sync.py" in found
    assert foreign_tracebacks(errors) == 4
