"""``changes``: JSON lines without loss, Arrow, counts; neither Java nor the source is asked."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.cli.invocation import run
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.capture.capture import capture
from spark_jobs.logicalrep.lsn import Lsn
from tests.cli.command import DSN_VARIABLE, Command, configured
from tests.fixtures.pipelines import prepare_slot
from tests.fixtures.servers import Database

pytestmark = pytest.mark.postgres

PAGE = Path(__file__).parents[2] / "docs" / "downstream.md"


@pytest.fixture
def logged(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A change log with three changes of ``public.orders``, and a source that is gone."""
    columns = "id bigint PRIMARY KEY, amount numeric(20,2), ratio float8, photo bytea, at timestamptz, day date"
    database.execute(f"CREATE TABLE orders ({columns})")
    command = configured(tmp_path, database.dsn, database.name, ["public.orders"])
    monkeypatch.setenv(DSN_VARIABLE, database.dsn)
    pipeline = load_pipeline(command.configuration)
    prepare_slot(pipeline)
    database.execute(
        "INSERT INTO orders VALUES (9007199254740993, 123456789012345678.90, 'NaN', '\\x00ff',"
        " '2026-01-02 03:04:05.678901+02', '2026-01-02')",
        "UPDATE orders SET ratio = '-Infinity'",
        "DELETE FROM orders",
    )
    capture(pipeline)
    monkeypatch.setenv(DSN_VARIABLE, "host=nowhere")
    return command


def test_json_lines_and_counts(logged: Command, capfd: pytest.CaptureFixture[str]) -> None:
    call = ["changes", "--config", str(logged.configuration), "--table", "orders"]
    assert run(call) == 0
    inserted, updated, deleted = (json.loads(line) for line in capfd.readouterr().out.splitlines())
    assert inserted["after"] == {
        "id": 9007199254740993,
        "amount": "123456789012345678.90",
        "ratio": "NaN",
        "photo": "\\x00ff",
        "at": "2026-01-02T01:04:05.678901+00:00",
        "day": "2026-01-02",
    }
    assert (updated["after"]["ratio"], updated["before"]) == ("-Infinity", None)
    assert (deleted["_operation"], deleted["before"]["id"], deleted["after"]) == ("delete", 9007199254740993, None)
    assert deleted["_before_not_sent"] == ["amount", "ratio", "photo", "at", "day"]
    assert run([*call, "--from", updated["_commit_lsn"], "--json"]) == 0
    counted = json.loads(capfd.readouterr().out)
    assert (counted["lo"], counted["updates"], counted["deletes"], counted["inserts"]) == (
        updated["_commit_lsn"],
        1,
        1,
        0,
    )
    assert Lsn.parse(counted["hi"]) > Lsn.parse(deleted["_commit_lsn"])


def test_arrow(logged: Command, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    call = ["changes", "--config", str(logged.configuration), "--table", "orders", "--output", "arrow"]
    assert run(call) == 0
    found = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all()
    assert found.column("_operation").to_pylist() == ["insert", "update", "delete"]


def test_arrow_is_not_for_a_terminal(logged: Command) -> None:
    ours, theirs = pty.openpty()
    call = [sys.executable, "-m", "cdc_assets.cli", "changes", "--config", str(logged.configuration)]
    done = subprocess.run(
        [*call, "-t", "orders", "-o", "arrow"], stdout=theirs, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert done.stderr.startswith("postgres-cdc: --output arrow is not for a terminal: send it to a file or a pipe\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--table", "public.nothing"], "knows no table public.nothing"),
        (["--table", "orders", "--from", "noon"], "neither an LSN nor a time"),
        (["--table", "orders", "--from", "0/1", "--partition", "0/1-0/2"], "give --partition, or --from and --to"),
        ([], "give the --table whose changes you want"),
    ],
)
def test_wrong_usage(logged: Command, capfd: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    assert run(["changes", "--config", str(logged.configuration), *options]) == 2
    assert said in capfd.readouterr().err.splitlines()[0]


def test_the_example_for_duckdb(logged: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (example,) = (each for each in code if "import duckdb" in each)
    monkeypatch.chdir(logged.configuration.parent)
    logged.configuration.rename("shop.yaml")
    exec(example, {})  # noqa: S102 - our own page
