"""`cut` on a lake of the test: at an LSN, at a time, and where there is none. No server, no Java."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.cli.invocation import run
from spark_jobs.configuration import Lake
from spark_jobs.delta.commit import commit_name
from spark_jobs.lake.cuts import TableCut, write_cut
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from tests.change_log.timed_log import NOON, log_of
from tests.cli.command import DSN_VARIABLE, configured

ODD = QualifiedName("public", "Order Items")


def test_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    command = configured(tmp_path, "host=nowhere", "shop", ["public.orders"])
    monkeypatch.setenv(DSN_VARIABLE, "host=nowhere")
    call = ["cut", "--config", str(command.configuration)]
    lake = Lake(str(tmp_path / "lake"))
    Path(lake.path).mkdir()
    log_of(Path(lake.path), range(3))
    Path(lake.path, "log").rename(lake.change_log)
    assert run(call) == 1
    assert "there are no cuts" in capfd.readouterr().err
    commits = Path(lake.table(ODD), "_delta_log")
    commits.mkdir(parents=True)
    for window in (1, 2):
        write_cut(lake, window, Lsn(100 * window + 100), (TableCut(ODD, 5, "A", 10 * window),))
        (commits / commit_name(10 * window)).touch()

    def answer(*options: str) -> tuple[str, str, int, str]:
        assert run([*call, *options, "--json"]) == 0
        document = json.loads(capfd.readouterr().out)
        (table,) = document["tables"]
        assert table["path"] == f"{lake.path}/tables/public/Order%20Items"
        return document["lsn"], document["commit_time"], table["delta_version"], table["name"]

    name = 'public."Order Items"'
    first = ("0/C8", (NOON + timedelta(seconds=9)).isoformat(), 10, name)
    second = ("0/12C", (NOON + timedelta(seconds=20)).isoformat(), 20, name)
    assert answer() == answer("--at", "F/0") == answer("--at", "0/12C") == second
    assert answer("--at", "0/12B") == answer("--at", (NOON + timedelta(seconds=10)).isoformat()) == first
    assert answer("--at", (NOON + timedelta(seconds=20)).isoformat()) == second
    assert run([*call, "--at", (NOON - timedelta(seconds=1)).isoformat()]) == 1
    assert "nothing shows what was committed by 2026-11-22T11:59:59+00:00" in capfd.readouterr().err
    assert run([*call, "--at", "0/C7"]) == 1
    assert "hold none at or before 0/C7: the oldest is at 0/C8" in capfd.readouterr().err
    (commits / commit_name(10)).rename(commits / f"{10:020}.checkpoint.parquet")
    assert answer("--at", "0/C8") == first
    (commits / f"{10:020}.checkpoint.parquet").unlink()
    assert run([*call, "--at", "0/C8"]) == 1
    assert f"{name} cannot be read at 0/C8 now: its Delta version 10 is gone" in capfd.readouterr().err
    assert run(call) == 0
    assert "LSN 0/12C, last commit 2026-11-22 12:00:20+00:00, window 2" in capfd.readouterr().out
