"""The names that the package promises, and the example that uses nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cdc_assets
from tests.cli.command import DSN_VARIABLE, configured
from tests.fixtures.servers import Database

EXAMPLE = Path(__file__).parents[1] / "examples" / "sync.py"


@pytest.mark.parametrize("name", cdc_assets.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(cdc_assets, name).__name__ == name
    assert name in dir(cdc_assets)


def test_others_are_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        getattr(cdc_assets, "nonsense")  # noqa: B009


def test_the_example_uses_only_these() -> None:
    imports = [node for node in ast.walk(ast.parse(EXAMPLE.read_text())) if isinstance(node, ast.ImportFrom)]
    used = {name.name for node in imports if node.module == "cdc_assets" for name in node.names}
    assert {node.module for node in imports} == {"__future__", "cdc_assets"}
    assert used <= set(cdc_assets.__all__)


@pytest.mark.postgres
def test_the_example_syncs(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    file = configured(tmp_path, database.dsn, database.name, ["public.orders"]).configuration

    def run() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, DSN_VARIABLE: database.dsn}
        command = [sys.executable, str(EXAMPLE), str(file)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    assert run().returncode == 0
    database.execute("INSERT INTO orders VALUES (2)")
    done = run()
    assert (done.returncode, done.stdout) == (0, "public.orders applied 1\n"), done.stderr
    database.execute("DROP TABLE orders")
    stopped = run()
    assert stopped.returncode == 1
    assert "there is no table public.orders" in stopped.stderr
