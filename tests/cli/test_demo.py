"""The demo, smaller: everything equal, row by row, and its server gone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.mark.timeout(1200)  # seven syncs and six snapshots on a busy machine
def test_demo_ends_equal_and_leaves_no_server(jars_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    options = ["--scale", "1", "--rate", "50", "--seconds", "3", "--jars", str(jars_folder), "--folder", str(folder)]
    before = {process.pid for process in psutil.process_iter()}
    command = [sys.executable, "-m", "cdc_assets.cli", "demo", "--json", *options]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=1140, check=False)
    assert answer.returncode == 0, answer.stderr
    tables = json.loads(answer.stdout)["tables"]
    assert len(tables) == 10
    for table in tables:
        assert table["comparison"]["source_rows"] == table["comparison"]["lake_rows"]
        assert table["comparison"]["differing_columns"] == []
    altered = {table["name"] for table in tables if table["read_again"]}
    assert altered == {"shop.items"}
    assert {table["name"] for table in tables if table["columns"]} == {"shop.customers", "shop.orders"}
    assert sum(table["changes"] for table in tables) > 0
    assert (folder / "lake" / "tables" / "shop" / "orders" / "_delta_log").is_dir()
    # process_iter leaves out what it cannot ask: a process that has just ended
    left = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if process.pid not in before and "postgres-cdc-demo" in " ".join(process.info["cmdline"] or ())
    ]
    assert left == []
