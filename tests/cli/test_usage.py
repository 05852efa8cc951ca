"""Wrong usage and configuration: exit code 2, one line, nothing touched. No server is needed to say so."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cdc_assets import cli
from cdc_assets.cli.commands import SUMMARIES, postgres_cdc
from tests.cli.command import DSN_VARIABLE, Command, configured

pytestmark = pytest.mark.slow  # each starts a process

_UNREACHABLE = "host=127.0.0.1 port=1 dbname=nowhere user=nobody password=hunter2"


def test_unknown_command() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "cdc_assets.cli", "synch"], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 2
    what, hint = answer.stderr.splitlines()
    assert what == "postgres-cdc: No such command 'synch'. Did you mean 'sync'?"
    assert hint == "hint: postgres-cdc --help"


def test_a_ui_whose_port_is_in_use_does_not_begin(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        demo = [
            sys.executable,
            "-m",
            "cdc_assets.cli",
            "demo",
            "--ui",
            "--folder",
            str(tmp_path / "demo"),
            "--port",
            port,
        ]
        answer = subprocess.run(demo, capture_output=True, text=True, check=False, timeout=60)
    assert (answer.returncode, answer.stdout) == (1, "")
    what, hint = answer.stderr.splitlines()
    assert what == f"postgres-cdc: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert hint == "hint: choose another one with --port, or stop what listens there"
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("name", ["sync", "recover", "snapshot", "capture", "apply", "status", "doctor", "verify"])
def test_missing_configuration_file(name: str, tmp_path: Path) -> None:
    answer = Command(tmp_path / "none.yaml", {})(name)
    assert answer.exit_code == 2
    assert "no such file" in answer.problem


def test_unknown_field_names_file_field_and_what_is_allowed(tmp_path: Path) -> None:
    command = configured(tmp_path, _UNREACHABLE, "shop", ["public.orders"], lakes={})
    answer = command("sync", "--json")
    assert answer.exit_code == 2
    assert "pipeline.yaml" in answer.problem
    assert "lakes" in answer.problem
    assert "lake" in answer.document["error"]["message"]
    assert answer.document["error"]["type"] == "ConfigurationError"
    assert not (tmp_path / "lake").exists()


def test_missing_environment_variable(tmp_path: Path) -> None:
    command = configured(tmp_path, _UNREACHABLE, "shop", ["public.orders"])
    answer = Command(command.configuration, {})("sync")
    assert answer.exit_code == 2
    assert DSN_VARIABLE in answer.problem
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("words", [("forget", "--key", "id=1"), ("changes",)])
def test_a_second_table_is_not_ignored(tmp_path: Path, words: tuple[str, ...]) -> None:
    tables = ("--table", "public.orders", "-t", "public.items")
    answer = configured(tmp_path, _UNREACHABLE, "shop", ["public.orders"])(*words, *tables)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "one table at a time, not 2" in answer.problem


def test_malformed_lsn(tmp_path: Path) -> None:
    answer = configured(tmp_path, _UNREACHABLE, "shop", ["public.orders"])("capture", "--to", "yesterday")
    assert answer.exit_code == 2
    assert "not an LSN" in answer.problem


def test_unreachable_server_never_shows_the_password(tmp_path: Path) -> None:
    command = configured(tmp_path, _UNREACHABLE, "shop", ["public.orders"])
    for name in ("sync", "capture", "status", "doctor"):
        answer = command(name, "--json")
        assert answer.exit_code == 1
        assert "cannot connect" in answer.stdout
        assert "hunter2" not in answer.stdout + answer.stderr
    assert not (tmp_path / "lake").exists()


def test_help_loads_no_engine() -> None:
    program = "import sys; from cdc_assets.cli import run; run(['--help']); print([m for m in sys.modules if m in"
    program += " ('pyspark', 'dagster', 'deltalake', 'psycopg', 'pyarrow')])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_help_tells_every_command() -> None:
    context = click.Context(postgres_cdc)
    said = " ".join(postgres_cdc.get_help(context).split())
    for name, summary in SUMMARIES.items():
        command = postgres_cdc.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert f"{name} {summary}" in said
    modules = {
        file.stem
        for file in Path(cli.__file__).parent.glob("*.py")
        if re.search(r"^@click\.(command|group)\(", file.read_text(), re.MULTILINE)
    }
    assert modules - {"commands"} == set(SUMMARIES)  # the group of them all
