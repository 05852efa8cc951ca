"""What a Delta log says, written by hand as Delta's protocol has it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.delta.commit import KnownCommit
from spark_jobs.delta.transaction_log import LogFolder
from spark_jobs.errors import LakeError
from spark_jobs.lake.cuts import TableCut, write_cut
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.past_states import past_states
from spark_jobs.lake.table_state import (
    TableState,
    table_state,
    table_states,
    txn_app_id,
)
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

NAME = QualifiedName("public", "Order Items 100%")
IDENTITY = SlotIdentity(1, 1, "shop", "slot", "pgoutput", (), 180000)
OURS = txn_app_id(1, "slot")
OLD, NEW = (Generation(Lsn(lsn)) for lsn in (0x100, 0x200))


def _log(lake: Lake, name: QualifiedName = NAME) -> Path:
    folder = Path(lake.table(name)) / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _commit(
    lake: Lake,
    version: int,
    txn: tuple[str, int] | None = None,
    *,
    generation: Generation = OLD,
    windows: tuple[int, int] = (9, 9),
    lo: str = "0/1",
    told_format: int = 1,
) -> None:
    """One of ours for these windows of relation 5, or a foreign one. A snapshot begins where it ends, at 0/2."""
    told = {"generation": str(generation), "first_window": windows[0], "last_window": windows[1], "relid": 5}
    told |= {"lo": lo, "hi": "0/2", "format": told_format}
    info: dict[str, object] = {"operation": "OPTIMIZE", "timestamp": version}
    if txn:
        info |= {"operation": "MERGE", "userMetadata": json.dumps(told)}
    actions: list[dict[str, object]] = [{"commitInfo": info}]
    if txn:
        actions.append({"txn": {"appId": txn[0], "version": txn[1]}})
    text = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions)
    (_log(lake) / f"{version:020}.json").write_text(text)


def _checkpoint(lake: Lake, version: int, *txns: tuple[str, int]) -> None:
    rows = [{"appId": app_id, "version": number, "lastUpdated": 10} for app_id, number in txns]
    pq.write_table(pa.table({"txn": [*rows, None]}), _log(lake) / f"{version:020}.checkpoint.parquet")


def _known(lake: Lake, version: int) -> KnownCommit:
    commit = LogFolder.of(lake.table(NAME)).commit(version)
    assert commit is not None
    return commit.known


def test_no_table(tmp_path: Path) -> None:
    assert table_state(Lake(str(tmp_path)), NAME, IDENTITY) is None


def test_our_newest_commit_before_foreign_ones(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, 0, (OURS, 1))
    _commit(lake, 1, (OURS, 2), generation=NEW)
    _commit(lake, 2)
    expected = TableState(NAME, NEW, 9, 2, 5, commits=2, last_commit=_known(lake, 1))
    assert table_state(lake, NAME, IDENTITY) == expected


def test_a_commit_of_ours_before_a_checkpoint_made_by_others(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, 9, (OURS, 4))
    _commit(lake, 10)
    _checkpoint(lake, 10, (OURS, 4))
    _commit(lake, 11)
    expected = TableState(NAME, OLD, 9, 11, 5, commits=4, last_commit=_known(lake, 9))
    assert table_state(lake, NAME, IDENTITY) == expected


def test_a_commit_that_log_clean_up_has_removed_is_known_from_the_latest_cut(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _checkpoint(lake, 10, (OURS, 4))
    _commit(lake, 11)
    lost = table_state(lake, NAME, IDENTITY)
    assert lost is not None
    assert (lost.is_lost, lost.commits) == (True, 4)
    write_cut(lake, 7, Lsn(0x700), (TableCut(NAME, 5, str(NEW), 8, commits=3),))
    assert table_state(lake, NAME, IDENTITY) == lost, "that cut is of the commit before"
    write_cut(lake, 8, Lsn(0x800), (TableCut(NAME, 5, str(NEW), 9, commits=4),))
    assert table_state(lake, NAME, IDENTITY) == TableState(NAME, NEW, 8, 11, 5, commits=4)


def test_identifiers_that_somebody_has_let_expire_are_known_from_the_latest_cut(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _checkpoint(lake, 10)
    _commit(lake, 11)
    with pytest.raises(LakeError, match="did not write"):
        table_state(lake, NAME, IDENTITY)
    write_cut(lake, 7, Lsn(0x700), (TableCut(NAME, 5, str(NEW), 9, commits=4),))
    lost = table_state(lake, NAME, IDENTITY)
    assert lost is not None
    assert (lost.is_lost, lost.commits) == (True, 4), "version 10 is cleaned away, and may have been ours"
    write_cut(lake, 8, Lsn(0x800), (TableCut(NAME, 5, str(NEW), 10, commits=4),))
    assert table_state(lake, NAME, IDENTITY) == TableState(NAME, NEW, 8, 11, 5, commits=4)


def test_another_slot_of_ours_is_no_state_and_a_foreign_table_an_error(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, 0)
    with pytest.raises(LakeError, match="did not write"):
        table_state(lake, NAME, IDENTITY)
    _commit(lake, 1, (txn_app_id(1, "elsewhere"), 9))
    assert table_state(lake, NAME, IDENTITY) is None


def test_states_of_several_tables_and_the_error_of_an_unreadable_one(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    absent, damaged = QualifiedName("public", "absent"), QualifiedName("public", "damaged")
    _commit(lake, 0, (OURS, 3), generation=NEW)
    (_log(lake, damaged) / f"{0:020}.json").write_text('{"txn":{"appId"')
    found = table_states(lake, [damaged, absent, NAME], IDENTITY)
    assert list(found) == [damaged, NAME]
    assert found[NAME] == TableState(NAME, NEW, 9, 0, 5, commits=3, last_commit=_known(lake, 0))
    assert str(found[damaged]).startswith("public.damaged: the transaction log of ")


def test_past_states_newest_first(tmp_path: Path) -> None:
    """Each up to the next commit of a pipeline: an OPTIMIZE behind it shows the same rows."""
    lake = Lake(str(tmp_path))
    assert list(past_states(lake, NAME, IDENTITY)) == []
    _checkpoint(lake, 1, (OURS, 3))
    _commit(lake, 2, (OURS, 4), windows=(4, 4))
    _commit(lake, 3)
    _commit(lake, 4, (OURS, 5), windows=(5, 6))
    _commit(lake, 5, (txn_app_id(1, "elsewhere"), 9))
    _commit(lake, 6, (OURS, 6), generation=NEW, windows=(7, 7))
    found = [(past.state.version, past.state.ordinal, past.state.commits) for past in past_states(lake, NAME, IDENTITY)]
    assert found == [(6, 7, 6), (4, 6, 5), (3, 4, 4)], "what the checkpoint alone knows is no state"


def test_states_that_a_rebuild_has_replaced_are_left_out(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, 0, (OURS, 1), windows=(3, 3), lo="0/2")
    _commit(lake, 1, (OURS, 2), windows=(4, 6))
    _commit(lake, 2, (OURS, 3), generation=NEW, windows=(6, 6), lo="0/2")
    _commit(lake, 3, (OURS, 4), generation=NEW, windows=(7, 7))
    _commit(lake, 4, (OURS, 5), generation=NEW, windows=(8, 9))
    _commit(lake, 5, (OURS, 6), generation=NEW, windows=(8, 9))  # rebuilt from version 3
    found = [(past.state.version, past.state.ordinal) for past in past_states(lake, NAME, IDENTITY)]
    assert found == [(5, 9), (3, 7), (2, 6), (1, 6), (0, 3)]
    _commit(lake, 6, (OURS, 7), generation=NEW, windows=(7, 9))  # and once more, from its snapshot
    found = [(past.state.version, past.state.ordinal) for past in past_states(lake, NAME, IDENTITY)]
    assert found == [(6, 9), (2, 6), (1, 6), (0, 3)], "the states of the snapshot before are what they were"


def test_a_change_of_mode_replaces_no_state_of_the_mode_before(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    mirror = Generation(Lsn(2), "0a1b", ("delete",))
    history = replace(mirror, mode="history")
    _commit(lake, 0, (OURS, 1), generation=mirror, windows=(3, 3), lo="0/2")
    _commit(lake, 1, (OURS, 2), generation=mirror, windows=(4, 6))
    _commit(lake, 2, (OURS, 3), generation=history, windows=(4, 6))
    _commit(lake, 3, (OURS, 4), generation=history, windows=(7, 7))
    found = [(past.state.version, past.state.mode, past.is_snapshot) for past in past_states(lake, NAME, IDENTITY)]
    assert found == [(3, "history", False), (2, "history", False), (1, "mirror", False), (0, "mirror", True)]


def test_a_commit_in_a_later_format_is_refused(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, 0, (OURS, 1), told_format=2)
    with pytest.raises(LakeError, match="a later version of postgres-cdc has written its Delta table, in format 2"):
        table_state(lake, NAME, IDENTITY)
