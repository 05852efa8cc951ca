"""The demo, smaller: everything equal, row by row, and its server gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import psycopg
import pytest

from cdc_assets.demo.demo_server import keep_server, kept_server, new_server
from spark_jobs.errors import ConfigurationError

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

# what becomes of the demo's alterations: table → why it was read again, or what was done to its columns
READ_AGAIN = {
    "shop.items": "it was rewritten by DDL",
    "shop.order_lines": "the type of column quantity was changed; it was rewritten by DDL",
}
PARTITION_READ_AGAIN = {"shop.visits": "partition shop.visits_2024 was attached (2,000 rows)"}
FOLLOWED_IN_PLACE = {
    "shop.customers": ["given_name was renamed to family_name", "family_name was renamed to given_name"],
    "shop.orders": ["channel string was added"],
}


@pytest.mark.nightly  # by day with what follows it: test_persons_path
@pytest.mark.timeout(1200)  # six syncs and fourteen snapshots on a busy machine
def test_demo_ends_equal_and_leaves_no_server(jars_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    options = ["--scale", "1", "--rate", "50", "--seconds", "3", "--jars", str(jars_folder), "--folder", str(folder)]
    command = [sys.executable, "-m", "cdc_assets.cli", "demo", "--json", *options]
    # the server's data lies in it, and no other test's; its user must be able to enter it
    with tempfile.TemporaryDirectory() as own:
        Path(own).chmod(0o755)
        environment = {**os.environ, "TMPDIR": own}
        answer = subprocess.run(command, capture_output=True, text=True, timeout=1140, check=False, env=environment)
    assert answer.returncode == 0, answer.stderr
    tables = json.loads(answer.stdout)["tables"]
    assert len(tables) == 11
    for table in tables:
        assert table["comparison"]["source_rows"] == table["comparison"]["lake_rows"]
        assert table["comparison"]["differing_columns"] == []
    assert {table["name"]: table["read_again"].split(" (")[0] for table in tables if table["read_again"]} == READ_AGAIN
    assert {table["name"]: table["partitions"] for table in tables if table["partitions"]} == PARTITION_READ_AGAIN
    assert {table["name"]: table["columns"] for table in tables if table["columns"]} == FOLLOWED_IN_PLACE
    assert sum(table["changes"] for table in tables) > 0
    assert (folder / "lake" / "tables" / "shop" / "orders" / "_delta_log").is_dir()
    # process_iter leaves out what it cannot ask: a process that has just ended
    left = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if f"{own}/postgres-cdc-demo" in " ".join(process.info["cmdline"] or ())
    ]
    assert left == []


def test_a_kept_server_is_started_again_with_its_data(tmp_path: Path) -> None:
    """As ``demo --ui`` does."""
    with new_server(tmp_path) as server:
        unkept = server.data.parent
    assert not unkept.exists()
    with new_server(tmp_path) as server, psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS id")
        keep_server(tmp_path, server)
    with kept_server(tmp_path) as again:
        assert again is not None
        with psycopg.connect(again.dsn()) as connection:
            assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]
        with pytest.raises(ConfigurationError, match="is running"), new_server(tmp_path):
            pass
    with new_server(tmp_path):  # the next demo begins anew
        assert not again.data.exists()
    with kept_server(tmp_path) as none:
        assert none is None


_KEEP = """
import sys; from pathlib import Path; from cdc_assets.demo.demo_server import keep_server, new_server
with new_server(Path(sys.argv[1])) as server:
    keep_server(Path(sys.argv[1]), server, running=True)
"""


def test_a_server_that_is_to_go_on_outlives_its_starter_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    subprocess.run([sys.executable, "-c", _KEEP, str(tmp_path)], check=True, timeout=120)
    for _ in range(2):  # who finds it running leaves it running
        with kept_server(tmp_path) as server:
            assert server is not None
            psycopg.connect(server.dsn()).close()
    assert server is not None
    pid = int((server.data / "postmaster.pid").read_text().split()[0])
    stop = [sys.executable, "-m", "cdc_assets.cli", "demo", "--stop", "--json", "--folder", str(tmp_path)]
    stopped = subprocess.run(stop, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(stopped.stdout) == {"folder": str(tmp_path)}
    assert not psutil.pid_exists(pid)
    assert not server.data.parent.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
    again = subprocess.run(stop, capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 2
    assert f"there is no demo in {tmp_path}" in again.stderr
