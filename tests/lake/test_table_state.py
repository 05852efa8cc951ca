"""What a Delta log says, written by hand as Delta's protocol has it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.change_log.window_marker import SlotIdentity
from spark_jobs.configuration import Lake
from spark_jobs.errors import LakeError
from spark_jobs.lake.table_state import TableState, generation_of, table_state, table_states, txn_app_id
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

NAME = QualifiedName("public", "Order Items 100%")
IDENTITY = SlotIdentity(1, 1, "shop", "slot", "pgoutput", (), 180000)
OLD, NEW = (generation_of(Lsn(lsn)) for lsn in (0x100, 0x200))


def _log(lake: Lake, name: QualifiedName = NAME) -> Path:
    folder = Path(lake.table(name)) / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _commit(lake: Lake, version: int, *txns: tuple[str, int], relid: int | None = None) -> None:
    info = {"operation": "MERGE", "userMetadata": json.dumps({"relid": relid})} if relid else {"operation": "OPTIMIZE"}
    actions: list[dict[str, object]] = [{"commitInfo": info}]
    actions += [{"txn": {"appId": app_id, "version": ordinal}} for app_id, ordinal in txns]
    text = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions)
    (_log(lake) / f"{version:020}.json").write_text(text)


def test_no_table(tmp_path: Path) -> None:
    assert table_state(Lake(str(tmp_path)), NAME, 1, "slot") is None


def test_the_newest_of_ours_behind_foreign_commits(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, 0, (txn_app_id(1, "slot", OLD), 9), relid=5)
    _commit(lake, 1, (txn_app_id(1, "slot", NEW), 3), relid=6)
    _commit(lake, 2)
    assert table_state(lake, NAME, 1, "slot") == TableState(NAME, NEW, Lsn(0x200), 3, 2, 6)


def test_from_the_checkpoint_when_the_commits_are_gone(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    rows = [
        {"appId": txn_app_id(1, "slot", NEW), "version": 4, "lastUpdated": 20},
        {"appId": txn_app_id(1, "slot", OLD), "version": 9, "lastUpdated": 10},
        None,
    ]
    pq.write_table(pa.table({"txn": rows}), _log(lake) / f"{10:020}.checkpoint.parquet")
    _commit(lake, 11)
    assert table_state(lake, NAME, 1, "slot") == TableState(NAME, NEW, Lsn(0x200), 4, 11)


def test_another_slot_of_ours_is_no_state_and_a_foreign_table_an_error(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    _commit(lake, 0)
    with pytest.raises(LakeError, match="did not write"):
        table_state(lake, NAME, 1, "slot")
    _commit(lake, 1, (txn_app_id(1, "elsewhere", OLD), 9))
    assert table_state(lake, NAME, 1, "slot") is None


def test_of_several_those_that_are_there_and_why_one_cannot_be_read(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    absent, damaged = QualifiedName("public", "absent"), QualifiedName("public", "damaged")
    _commit(lake, 0, (txn_app_id(1, "slot", NEW), 3), relid=6)
    (_log(lake, damaged) / f"{0:020}.json").write_text('{"txn":{"appId"')
    found = table_states(lake, [damaged, absent, NAME], IDENTITY)
    assert list(found) == [damaged, NAME]
    assert found[NAME] == TableState(NAME, NEW, Lsn(0x200), 3, 0, 6)
    assert str(found[damaged]).startswith("public.damaged: the transaction log of ")
