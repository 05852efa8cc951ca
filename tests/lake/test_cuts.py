"""Cuts: written once, read back whole, forgotten table by table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.delta import upkeep
from spark_jobs.delta.commit import KnownCommit
from spark_jobs.delta.counted_files import CountedFiles
from spark_jobs.errors import LakeError
from spark_jobs.lake import cuts
from spark_jobs.lake.cuts import (
    CUTS_SCHEMA,
    Cut,
    TableCut,
    cut_at_end,
    cut_until,
    forget,
    latest_cut,
    shown_ends,
    write_cut,
)
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.table_state import TableState
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.differing_columns import DifferingColumns, NamedColumn
from spark_jobs.tables.ledger import Ledger
from tests.change_log.identity import IDENTITY

DIFFERING = DifferingColumns((NamedColumn(5, "Odd"),))
ORDERS = TableCut(
    QualifiedName("public", "orders"), 16384, "0000000000000064", version=3, commits=2, differing=DIFFERING
)
ITEMS = TableCut(
    QualifiedName("public", "Odd items"),
    16390,
    "0000000000000064",
    version=7,
    commits=3,
    last_commit=KnownCommit(6, "6f0c"),
)


def test_no_cut_in_a_new_lake(tmp_path: Path) -> None:
    assert latest_cut(Lake(str(tmp_path))) is None


def test_the_latest_cut_is_read_back_whole(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "a lake"))
    write_cut(lake, 1, Lsn(100), (ORDERS,))
    written = write_cut(lake, 2, Lsn(200), (ORDERS, ITEMS))
    assert latest_cut(lake) == written == Cut(2, 2, Lsn(200), (ORDERS, ITEMS))


def test_the_same_cut_twice_is_one_commit(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    write_cut(lake, 1, Lsn(100), (ORDERS,))
    write_cut(lake, 1, Lsn(100), (ORDERS,))
    assert DeltaTable(lake.cuts).version() == 0


def test_a_cut_of_no_tables_is_not_written(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    assert write_cut(lake, 1, Lsn(100), ()) is None
    assert latest_cut(lake) is None


def test_a_forgotten_table_is_in_no_cut_until_it_is_written_again(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    write_cut(lake, 1, Lsn(100), (ORDERS, ITEMS))
    forget(lake, {ORDERS.name})
    assert latest_cut(lake) == Cut(2, 1, Lsn(100), (ITEMS,))
    forget(lake, {ITEMS.name})
    assert latest_cut(lake) == Cut(3, 1, Lsn(100), ())
    write_cut(lake, 2, Lsn(200), (ORDERS,))
    assert latest_cut(lake) == Cut(4, 2, Lsn(200), (ORDERS,))


def known_state(state: TableState, cut: Cut | None) -> TableState:
    return Ledger(Lake("/lake"), WindowMarker(9, Window(Lsn(800), Lsn(900)), IDENTITY), cut).known(state)


def test_a_cut_counts_windows_that_left_no_commit() -> None:
    cut = Cut(5, 9, Lsn(900), (ORDERS,))
    optimized = TableState(ORDERS.name, Generation(Lsn(100)), ordinal=2, version=ORDERS.version + 1, commits=2)
    assert known_state(optimized, cut) == replace(optimized, ordinal=9, relid=16384)
    ahead = replace(optimized, ordinal=11)
    assert known_state(ahead, cut).ordinal == 11
    re_created = replace(optimized, generation=Generation(Lsn(200)))
    assert known_state(re_created, cut) == re_created
    put_back = replace(optimized, commits=1)
    assert known_state(put_back, cut) == put_back
    assert known_state(optimized, None) == known_state(optimized, Cut(5, 9, Lsn(900), (ITEMS,))) == optimized


def test_a_state_is_the_one_in_the_cut_only_if_our_commit_is_the_same() -> None:
    """Another process of ours may have put a commit of the same number, for fewer windows, in the place of ours."""
    cut = Cut(5, 9, Lsn(900), (ITEMS,))
    same = TableState(ITEMS.name, Generation(Lsn(100)), 2, version=8, commits=3, last_commit=ITEMS.last_commit)
    assert known_state(same, cut).ordinal == 9
    replaced = replace(same, last_commit=KnownCommit(6, "another"))
    assert known_state(replaced, cut) == replaced
    since = replace(same, commits=4, last_commit=KnownCommit(8, "since"))
    assert known_state(since, cut).ordinal == 9
    of_an_earlier_version = Cut(5, 9, Lsn(900), (replace(ITEMS, last_commit=None),))
    assert known_state(same, of_an_earlier_version).ordinal == 9


def test_cuts_of_earlier_versions_and_of_this_one_are_in_one_table(tmp_path: Path) -> None:
    """Also read by an earlier version, which knows fewer columns."""
    lake = Lake(str(tmp_path))
    earlier = pa.schema(
        [column for column in CUTS_SCHEMA if column.name not in ("commit_version", "commit_id", "differing")]
    )
    row = {"cut": 1, "window": 1, "lsn": 100, "nspname": "public", "relname": "Odd items", "relid": 16390}
    row |= {"generation": "0000000000000064", "version": 7, "commits": 3}
    write_deltalake(lake.cuts, pa.Table.from_pylist([row], schema=earlier))
    assert latest_cut(lake) == Cut(1, 1, Lsn(100), (replace(ITEMS, last_commit=None),))
    assert write_cut(lake, 2, Lsn(200), (ITEMS,)) == Cut(2, 2, Lsn(200), (ITEMS,))
    assert cut_until(lake, Lsn(100)).tables == (replace(ITEMS, last_commit=None),)
    files = CountedFiles(lake.cuts, "cut", earlier)
    assert [each["version"] for each in files.dataset(files.all()).to_table().to_pylist()] == [7, 7]
    again = pa.Table.from_pylist([row | {"cut": 3}], schema=earlier)
    write_deltalake(lake.cuts, again, mode="append", schema_mode="merge")
    assert latest_cut(lake) == Cut(3, 1, Lsn(100), (replace(ITEMS, last_commit=None),))


def test_a_later_window_is_never_followed_by_an_earlier_one(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    later = write_cut(lake, 5, Lsn(500), (ORDERS, ITEMS))
    assert write_cut(lake, 4, Lsn(400), (ORDERS,)) == later == latest_cut(lake)


def test_what_was_forgotten_since_the_work_began_stays_forgotten(tmp_path: Path) -> None:
    """Another process took a new snapshot of it: what is known of the old one is in no cut."""
    lake = Lake(str(tmp_path))
    began = write_cut(lake, 1, Lsn(100), (ORDERS, ITEMS))
    forget(lake, {ORDERS.name})
    cut = write_cut(lake, 2, Lsn(200), (ORDERS, ITEMS), based_on=began)
    assert cut is not None
    assert cut.tables == (ITEMS,)


def test_of_two_writers_that_saw_one_latest_cut_one_writes_and_the_other_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped between its look and its write, and goes on later."""
    lake = Lake(str(tmp_path))
    began = write_cut(lake, 1, Lsn(100), (ORDERS, ITEMS))

    def stopped_before_its_write(*arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        forget(lake, {ORDERS.name})
        write_deltalake(*arguments, **named)

    monkeypatch.setattr(cuts, "write_deltalake", stopped_before_its_write)
    cut = write_cut(lake, 2, Lsn(200), (ORDERS, ITEMS), based_on=began)
    assert cut == Cut(3, 2, Lsn(200), (ITEMS,))


def test_a_cut_that_this_process_has_written_is_what_its_file_holds(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for number in range(1, 4):
        write_cut(lake, number, Lsn(100 * number), (ORDERS, replace(ITEMS, version=number)))
    forget(lake, {ORDERS.name})
    known, held = latest_cut(lake), latest_cut(Lake(lake.path))
    assert held == known == Cut(4, 3, Lsn(300), (replace(ITEMS, version=3),))
    assert known is not None
    assert [table.commit_cut for table in held.tables] == [table.commit_cut for table in known.tables] == [1]


def test_damaged_cuts_are_an_error_of_the_lake(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    write_cut(lake, 1, Lsn(100), (ORDERS,))
    for commit in Path(lake.cuts, "_delta_log").glob("*.json"):
        commit.write_text("{")
    with pytest.raises(LakeError, match="they may be moved away"):
        latest_cut(lake)


def test_the_newest_cut_until_an_lsn(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    with pytest.raises(LakeError, match="there are no cuts"):
        cut_until(lake)
    first = write_cut(lake, 1, Lsn(100), (ORDERS, ITEMS))
    second = write_cut(lake, 3, Lsn(300), (ITEMS, replace(ORDERS, version=4)))
    assert (cut_until(lake, Lsn(100)), cut_until(lake, Lsn(299))) == (_sorted(first), _sorted(first))
    assert cut_until(lake, before_window=3) == _sorted(first)
    assert cut_until(lake, Lsn(300)) == cut_until(lake, before_window=4) == cut_until(lake) == _sorted(second)
    with pytest.raises(LakeError, match="hold none at or before 0/63: the oldest is at 0/64"):
        cut_until(lake, Lsn(99))


def test_a_table_that_is_forgotten_later_is_in_the_cut_as_it_was(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    write_cut(lake, 1, Lsn(100), (ORDERS, ITEMS))
    forget(lake, {ORDERS.name})
    rebuilt = replace(ITEMS, version=9)
    write_cut(lake, 1, Lsn(100), (rebuilt,))
    assert cut_until(lake) == Cut(3, 1, Lsn(100), (rebuilt, ORDERS))
    write_cut(lake, 2, Lsn(200), (ITEMS,))
    assert cut_until(lake) == Cut(4, 2, Lsn(200), (ITEMS,))


def test_a_table_that_was_stopped_is_added_to_the_cut_of_an_end(tmp_path: Path) -> None:
    lake, end = Lake(str(tmp_path)), datetime(2026, 11, 27, tzinfo=UTC)
    ends = (end.isoformat(), (end + timedelta(hours=1)).isoformat())
    assert cut_at_end(lake, end) is None
    write_cut(lake, 1, Lsn(100), (ORDERS,), ends=ends)
    write_cut(lake, 2, Lsn(200), (replace(ORDERS, version=5),))
    latest = write_cut(lake, 3, Lsn(300), (replace(ORDERS, version=6),))
    assert cut_at_end(lake, end) == cut_at_end(lake, end + timedelta(hours=1)) == Cut(1, 1, Lsn(100), (ORDERS,))
    for _ in range(2):
        write_cut(lake, 1, Lsn(100), (ITEMS, replace(ORDERS, version=1)), ends=ends)
    assert latest is not None
    assert latest_cut(lake) == cut_until(lake) == replace(latest, number=4), "added once"
    assert latest_cut(lake) == latest_cut(Lake(lake.path))
    assert cut_at_end(lake, end) == cut_until(lake, Lsn(199)) == Cut(4, 1, Lsn(100), (ITEMS, ORDERS))
    assert cut_until(lake, Lsn(299)) == Cut(2, 2, Lsn(200), (replace(ORDERS, version=5),))
    assert cut_at_end(lake, end - timedelta(hours=1)) is None
    assert shown_ends(lake) == {end, end + timedelta(hours=1)}
    write_cut(lake, 4, Lsn(400), (ORDERS,))
    assert latest_cut(lake) == Cut(5, 4, Lsn(400), (ORDERS,))


def _sorted(cut: Cut | None) -> Cut:
    assert cut is not None
    return replace(cut, tables=tuple(sorted(cut.tables, key=lambda table: table.name)))


def test_cuts_that_nobody_maintains_stay_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_IN_PASSING_EVERY", 10)
    lake = Lake(str(tmp_path))
    for number in range(1, 46):
        write_cut(lake, number, Lsn(100 * number), (replace(ORDERS, version=number),))
    assert len(DeltaTable(lake.cuts).file_uris()) == 1 + 5
    assert latest_cut(lake) == Cut(45, 45, Lsn(4500), (replace(ORDERS, version=45),))
    assert [cut_until(lake, Lsn(100 * number)).number for number in (1, 9, 10, 23, 40, 45)] == [1, 9, 10, 23, 40, 45]
