"""A process that is stopped in the middle, and goes on when others have done its work: messages and cuts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import TableCut, forget, latest_cut, write_cut
from spark_jobs.lake.messages_state import messages_state
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from tests.apply.landed_messages import applied, contents, land, message, pipeline
from tests.change_log.identity import IDENTITY
from tests.lake.stopping import stopped_at

__all__ = ["pipeline"]  # a fixture

pytestmark = pytest.mark.slow

ORDERS = TableCut(QualifiedName("public", "orders"), relid=16384, generation="A", version=3, commits=2)
ITEMS = TableCut(QualifiedName("public", "items"), relid=16390, generation="A", version=7, commits=5)


def ranges(pipeline: Pipeline) -> list[tuple[int, int]]:
    """The windows of the commits that have messages, oldest first."""
    history = reversed(DeltaTable(pipeline.lake.messages).history())
    return [(int(each["first_window"]), int(each["last_window"])) for each in history if "first_window" in each]


def work(pipeline: Pipeline) -> partial[TableApplied]:
    """The messages of all windows that are landed now."""
    return partial(applied, pipeline)


# where the state is read, and where the files are written and the commit is not made
@pytest.mark.parametrize("where", ["logical_messages", "create_write_transaction"])
def test_messages_of_an_overtaken_process_are_not_written_again(pipeline: Pipeline, tmp_path: Path, where: str) -> None:
    land(pipeline, 1, [message(1)])
    assert applied(pipeline).outcome == "applied"
    land(pipeline, 2, [message(2)])
    with stopped_at(where, work(pipeline), tmp_path) as orphan:
        land(pipeline, 3, [message(3)])
        assert applied(pipeline).outcome == "applied"
        left: TableApplied = orphan.goes_on()
    assert (left.outcome, type(left.error)) == ("stopped", LakeError)
    assert "another process writes this table" in str(left.error)
    assert contents(pipeline) == ["content 1", "content 2", "content 3"]
    assert ranges(pipeline) == [(1, 1), (2, 3)]


def test_of_two_processes_that_find_no_messages_table_one_makes_it(pipeline: Pipeline, tmp_path: Path) -> None:
    land(pipeline, 1, [message(1)])
    with stopped_at("create", work(pipeline), tmp_path) as orphan:
        assert applied(pipeline).outcome == "applied"
        left: TableApplied = orphan.goes_on()
    assert (left.outcome, type(left.error)) == ("stopped", LakeError)
    assert contents(pipeline) == ["content 1"]
    assert ranges(pipeline) == [(1, 1)]
    state = messages_state(pipeline.lake, IDENTITY)
    assert state is not None
    assert state.ordinal == 1


def test_the_next_run_goes_on_behind_what_a_killed_process_has_committed(pipeline: Pipeline, tmp_path: Path) -> None:
    land(pipeline, 1, [message(1)])
    land(pipeline, 2, [message(2)])
    with stopped_at("update_incremental", work(pipeline), tmp_path):
        assert ranges(pipeline) == [(1, 2)], "it has committed, and then looks for the version that it has made"
    land(pipeline, 3, [message(3)])
    assert applied(pipeline).outcome == "applied"
    assert contents(pipeline) == ["content 1", "content 2", "content 3"]
    assert ranges(pipeline) == [(1, 2), (3, 3)]


def test_a_cut_of_a_process_that_was_stopped_does_not_hide_a_later_one(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    began = write_cut(lake, 1, Lsn(100), (ORDERS, ITEMS))
    with stopped_at("write_deltalake", partial(write_cut, lake, 2, Lsn(200), (ORDERS, ITEMS)), tmp_path) as orphan:
        later = write_cut(lake, 3, Lsn(300), (ORDERS, ITEMS), based_on=began)
        assert orphan.goes_on() == later
    assert latest_cut(lake) == later


def test_a_cut_of_a_process_that_was_stopped_leaves_out_what_was_snapshotted_since(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    began = write_cut(lake, 1, Lsn(100), (ORDERS, ITEMS))
    late = partial(write_cut, lake, 2, Lsn(200), (ORDERS, ITEMS), based_on=began)
    with stopped_at("write_deltalake", late, tmp_path) as orphan:
        forget(lake, {ORDERS.name})
        written = orphan.goes_on()
    latest = latest_cut(lake)
    assert latest == written
    assert latest is not None
    assert (latest.ordinal, latest.tables) == (2, (ITEMS,))


def test_of_two_processes_that_find_no_cut_one_makes_them(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with stopped_at("write_deltalake", partial(write_cut, lake, 1, Lsn(100), (ORDERS,)), tmp_path) as orphan:
        later = write_cut(lake, 2, Lsn(200), (ORDERS, ITEMS))
        assert orphan.goes_on() == later
    assert latest_cut(lake) == later
