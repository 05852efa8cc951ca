"""The messages table: every message of the change log once, in order, without Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.apply.apply_messages import apply_messages
from spark_jobs.apply.plan import plan_apply
from spark_jobs.change_log.log import ChangeLog, marker_row
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import MessagePrefixes, Pipeline, Table
from spark_jobs.lake.cuts import TableCut, write_cut
from spark_jobs.lake.messages_state import MESSAGES_NAME, messages_state
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.status import pipeline_status
from tests.apply.landed_messages import applied, contents, land, message, pipeline, rows
from tests.change_log.identity import IDENTITY
from tests.fixtures.no_spark import no_spark

__all__ = ["pipeline"]  # a fixture


def done_upto(pipeline: Pipeline) -> tuple[int, int]:
    """By the table's own log: the last window of its commits, and the Delta version."""
    state = messages_state(pipeline.lake, IDENTITY)
    assert state is not None
    return state.ordinal, state.version


def cut(pipeline: Pipeline, ordinal: int) -> None:
    """As an apply of all tables leaves it, at the end of this window."""
    state = messages_state(pipeline.lake, IDENTITY)
    assert state is not None
    shown = TableCut(MESSAGES_NAME, 0, str(state.generation), state.version, state.commits)
    assert write_cut(pipeline.lake, ordinal, Lsn(100 * ordinal + 100), (shown,)) is not None


def test_messages_are_written_once(pipeline: Pipeline) -> None:
    land(pipeline, 1, [message(1), message(2)], changes=3)
    land(pipeline, 2, [message(3)])
    first = applied(pipeline)
    assert (first.outcome, first.first, first.last, first.rows_written, first.delta_version) == ("applied", 1, 2, 3, 1)
    assert contents(pipeline) == ["content 1", "content 2", "content 3"]
    assert [(row["window"], row["ordinal"], row["commit_lsn"], row["xid"]) for row in rows(pipeline)] == [
        (1, 0, "0/64", 701),
        (1, 1, "0/64", 701),
        (2, 0, "0/C8", 702),
    ]
    again = applied(pipeline)
    assert (again.outcome, again.rows_written, again.delta_version) == ("already applied", 0, None)
    land(pipeline, 3, [message(4)])
    assert applied(pipeline).rows_written == 1
    assert contents(pipeline) == [f"content {n}" for n in (1, 2, 3, 4)]


def test_windows_without_messages_write_nothing(pipeline: Pipeline) -> None:
    land(pipeline, 1, [], changes=2)
    empty = applied(pipeline)
    assert (empty.outcome, empty.delta_version) == ("nothing to apply", None)
    assert rows(pipeline) == []  # the table is there to be queried
    assert done_upto(pipeline) == (0, 0)
    land(pipeline, 2, [message(1)])
    land(pipeline, 3, [], changes=2)
    assert applied(pipeline).delta_version == 1
    assert done_upto(pipeline) == (3, 1)
    land(pipeline, 4, [])
    assert applied(pipeline).delta_version is None
    assert DeltaTable(pipeline.lake.messages).version() == 1


def test_windows_before_the_latest_cut_are_not_looked_at_again(pipeline: Pipeline) -> None:
    for ordinal in (1, 2, 3):
        land(pipeline, ordinal, [])
    applied(pipeline)
    cut(pipeline, 3)
    land(pipeline, 4, [message(1)])
    assert applied(pipeline).first == 4
    assert contents(pipeline) == ["content 1"]


def test_a_cut_stays_valid_after_foreign_commits_but_not_after_the_table_is_re_created(pipeline: Pipeline) -> None:
    land(pipeline, 1, [message(1)])
    land(pipeline, 2, [])
    applied(pipeline)
    cut(pipeline, 2)
    DeltaTable(pipeline.lake.messages).create_checkpoint()
    DeltaTable(pipeline.lake.messages).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    land(pipeline, 3, [message(2)])
    assert applied(pipeline).first == 3
    shutil.rmtree(pipeline.lake.messages)
    assert applied(pipeline).first == 1
    assert contents(pipeline) == ["content 1", "content 2"]


def test_a_compaction_leaves_the_table_up_to_date_in_status(pipeline: Pipeline) -> None:
    """Windows without messages leave no commit: only the cut knows that they are done."""
    for ordinal, messages in ((1, [message(1)]), (2, [message(2)]), (3, []), (4, [])):
        land(pipeline, ordinal, messages)
        applied(pipeline)
    cut(pipeline, 4)
    assert windows_behind(pipeline) == 0
    assert DeltaTable(pipeline.lake.messages).optimize.compact()["numFilesRemoved"] == 2
    assert windows_behind(pipeline) == 0


def windows_behind(pipeline: Pipeline) -> int | None:
    """What ``status`` says; the source need not be there for that."""
    messages = pipeline_status(pipeline).messages
    assert messages is not None
    assert messages.error is None
    return messages.pending_windows


def test_an_older_copy_of_the_table_is_not_the_one_of_the_cut(pipeline: Pipeline, tmp_path: Path) -> None:
    """A backup that was put back lacks commits that the cut counts on."""
    land(pipeline, 1, [message(1)])
    applied(pipeline)
    shutil.copytree(pipeline.lake.messages, tmp_path / "backup")
    land(pipeline, 2, [message(2)])
    land(pipeline, 3, [])
    applied(pipeline)
    cut(pipeline, 3)
    shutil.rmtree(pipeline.lake.messages)
    shutil.copytree(tmp_path / "backup", pipeline.lake.messages)
    assert windows_behind(pipeline) == 2
    applied(pipeline)
    assert contents(pipeline) == ["content 1", "content 2"]


def test_upto_ends_the_range(pipeline: Pipeline) -> None:
    for ordinal in (1, 2, 3):
        land(pipeline, ordinal, [message(ordinal)])
    assert applied(pipeline, upto=Lsn(300)).last == 2
    assert contents(pipeline) == ["content 1", "content 2"]
    assert applied(pipeline).rows_written == 1
    assert contents(pipeline) == ["content 1", "content 2", "content 3"]


def test_a_damaged_message_stops_the_table_after_the_windows_before_it(pipeline: Pipeline) -> None:
    land(pipeline, 1, [message(1)])
    land(pipeline, 2, [message(2), message(3)[:-1], message(4)])
    land(pipeline, 3, [message(5)])
    for outcome in (applied(pipeline), applied(pipeline)):
        assert outcome.outcome == "stopped"
        assert str(outcome.error).startswith(
            "window 2, commit LSN 0/C8, ordinal 1: a logical message is not understood"
        )
        assert contents(pipeline) == ["content 1"]
    assert done_upto(pipeline) == (1, 1)


def test_prefixes_choose_from_the_next_window_on(pipeline: Pipeline) -> None:
    land(pipeline, 1, [message(1, "outbox"), message(2, "audit.x"), message(3, "other")])
    chosen = with_messages(pipeline, MessagePrefixes(("outbox", "audit.*")))
    assert applied(chosen).rows_written == 2
    land(pipeline, 2, [message(4, "other")])
    none = applied(chosen)
    assert (none.outcome, none.delta_version, contents(pipeline)) == (
        "nothing to apply",
        None,
        ["content 1", "content 2"],
    )
    cut(pipeline, 2)
    assert applied(chosen).outcome == "already applied"
    land(pipeline, 3, [message(5, "other")])
    assert applied(with_messages(pipeline, True)).rows_written == 1
    assert contents(pipeline) == ["content 1", "content 2", "content 5"]


def with_messages(pipeline: Pipeline, messages: bool | MessagePrefixes) -> Pipeline:
    return replace(pipeline, source=replace(pipeline.source, messages=messages))


def test_a_missing_window_is_a_gap(pipeline: Pipeline) -> None:
    land(pipeline, 1, [message(1)])
    applied(pipeline)
    land(pipeline, 2, [message(2)])
    third = land(pipeline, 3, [message(3)])
    run = Run(pipeline, no_spark)
    outcome = apply_messages(run, replace(plan_apply(run), ahead=(third,)))
    assert "is at window 1, and the change log does not hold window 2" in str(outcome.error)
    assert contents(pipeline) == ["content 1"]


def test_a_concurrent_writer_is_an_error(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    land(pipeline, 1, [message(1)])
    read = ChangeLog.logical_messages

    def overtaken(self: ChangeLog, ordinals: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        monkeypatch.setattr(ChangeLog, "logical_messages", read)
        assert applied(pipeline).outcome == "applied"
        yield from read(self, ordinals, columns)

    monkeypatch.setattr(ChangeLog, "logical_messages", overtaken)
    outcome = applied(pipeline)
    assert "another process writes this table" in str(outcome.error)
    assert contents(pipeline) == ["content 1"]


def test_a_foreign_table_is_not_changed(pipeline: Pipeline) -> None:
    write_deltalake(pipeline.lake.messages, pa.table({"a": [1]}))
    land(pipeline, 1, [message(1)])
    outcome = applied(pipeline)
    assert "was not written from this slot's messages" in str(outcome.error)
    assert DeltaTable(pipeline.lake.messages).to_pyarrow_table().to_pylist() == [{"a": 1}]


def test_a_schema_with_the_name_of_the_folder_is_refused(pipeline: Pipeline) -> None:
    land(pipeline, 1, [message(1)])
    outcome = applied(replace(pipeline, tables=(Table(QualifiedName("_messages", "t")),)))
    assert str(outcome.error).startswith("_messages.t lies in the folder of the messages table")
    assert not Path(pipeline.lake.messages).exists()
    assert applied(replace(pipeline, tables=(Table(QualifiedName("public", "_messages")),))).error is None


def test_a_window_of_many_messages_takes_seconds(pipeline: Pipeline) -> None:
    place = {"window": 1, "commit_lsn": 100, "xid": 1, "kind": "M"}

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 100_000, 10_000):
            logged = [{**place, "ordinal": n, "data": message(n)} for n in range(start, start + 10_000)]
            yield pa.RecordBatch.from_pylist(logged, schema=CHANGE_LOG_SCHEMA)
        yield marker_row(WindowMarker(1, Window(Lsn(100), Lsn(200)), IDENTITY, logical_messages=100_000))

    assert ChangeLog(pipeline.lake.change_log).land(IDENTITY, 1, batches())
    started = time.monotonic()
    assert applied(pipeline).rows_written == 100_000
    assert time.monotonic() - started < 10
    written = contents(pipeline)
    assert (len(written), written[0], written[-1]) == (100_000, "content 0", "content 99999")
