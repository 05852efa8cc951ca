"""The image and the trial of ``deploy/``, as far as they can be tried without Docker: each file is valid and names only
what is there, what the image installs has its versions from the lock file, and the trial's pipeline replicates."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cdc_assets.cli.commands import postgres_cdc
from cdc_assets.cli.terminal import Terminal
from spark_jobs.spark.java import SUPPORTED
from tests.cli.command import Command
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.psql import psql_program
from tests.fixtures.servers import Database

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE_TEXT = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# a line that ends in a backslash goes on in the next one
STEPS = [
    (word, argument)
    for word, _, argument in (
        line.partition(" ")
        for line in re.sub(r"\\\n\s*", "", DOCKERFILE).splitlines()
        if line and not line.startswith("#")
    )
]


def _arguments(step: str) -> list[str]:
    return [argument for word, argument in STEPS if word == step]


def _accept(name: str, *options: str) -> None:
    found = postgres_cdc.get_command(click.Context(postgres_cdc), name)
    assert found is not None
    found.make_context(name, list(options), obj=Terminal())


def _first_stage(folder: Path) -> str:
    """Run the commands of the stage that builds the wheel, on what it copies; the pins that it writes."""
    for copied in (argument for argument in _arguments("COPY") if not argument.startswith("--")):
        *sources, target = copied.split()
        for source in sources:
            whole, into = ROOT / source, folder / target
            shutil.copytree(whole, into) if whole.is_dir() else shutil.copy(whole, into)
    command = next(each for each in _arguments("RUN") if each.startswith("pip wheel"))
    command = command.replace("pip wheel", f"{shlex.quote(sys.executable)} -m pip wheel")
    command = command.replace("/wheels", shlex.quote(str(folder / "wheels")))
    subprocess.run(["/bin/sh", "-ec", command], cwd=folder, check=True)
    assert list((folder / "wheels").glob("dagster_postgres_cdc-*.whl"))
    return (folder / "wheels" / "tested.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("copied", _arguments("COPY"))
def test_what_the_image_copies_is_there(copied: str) -> None:
    *sources, _ = [word for word in copied.split() if not word.startswith("--")]
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.slow
def test_the_image_installs_the_versions_of_the_lock_file(tmp_path: Path) -> None:
    written = [Requirement(line) for line in _first_stage(tmp_path).splitlines()]
    pins = {
        canonicalize_name(pin.name): str(pin.specifier) for pin in written if not pin.marker or pin.marker.evaluate()
    }
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (dependencies,) = re.findall(r"^dependencies = \[\n(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    named = [Requirement(each).name for each in re.findall(r'^  "([^"]*)"', dependencies, re.MULTILINE)]
    installed = [
        command.split("tested.txt ")[1].split()[0] for command in _arguments("RUN") if "tested.txt /" in command
    ]
    assert installed == ["/wheels/*.whl"]
    named += [word for command in _arguments("RUN") for word in re.findall(r"tested\.txt ([a-z-]+)", command)]
    assert {"pyspark", "dagster-webserver"} <= set(named)
    assert {name: pins[canonicalize_name(name)] for name in named} == {name: f"=={version(name)}" for name in named}


def test_the_image_runs_modules_and_a_java_that_there_are() -> None:
    for module in re.findall(r"python -m ([\w.]+)", DOCKERFILE):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()
    (java,) = re.findall(r"openjdk-(\d+)-jre-headless", DOCKERFILE)
    assert int(java) in SUPPORTED


def test_the_image_runs_as_a_user_and_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, as Kubernetes must see that it is not root."""
    monkeypatch.setenv("POSTGRES_CDC_CONFIG", "shop.yaml")
    for stage in re.split(r"^FROM .* AS (?:installed|spark|dagster)$", DOCKERFILE, flags=re.MULTILINE)[1:]:
        assert re.findall(r"^USER (\w+)$", stage, re.MULTILINE)[-1] == "1000"
    *follow, dagster = map(json.loads, _arguments("CMD"))
    assert dagster[0] == "dagster"
    for command in follow:
        _accept(*command)


def test_the_image_of_executors_can_run_its_entrypoint(tmp_path: Path) -> None:
    """Without ``executor`` it is the command; ``tests/spark/test_executor_entrypoint.py`` has it run tasks."""
    (entrypoint,) = (json.loads(each)[0] for each in _arguments("ENTRYPOINT") if "kubernetes" in each)
    assert f"deploy/{entrypoint} /usr/local/bin/" in _arguments("COPY")
    assert os.access(DEPLOY / entrypoint, os.X_OK)
    command = tmp_path / "postgres-cdc"
    command.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = [str(DEPLOY / entrypoint), "sync", "--table", "public.*"]
    said = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "<sync><--table><public.*>"


@pytest.mark.slow
def test_compose_understands_its_file() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*check, str(DEPLOY / "compose.yaml")], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_services_name_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTGRES_CDC_CONFIG", "shop.yaml")
    stages = re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE)
    for service in SERVICES.values():
        for mounted in service.get("volumes", ()):
            assert (DEPLOY / mounted.split(":")[0]).is_file()
        if build := service.get("build"):
            assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
            assert build["target"] in stages
            if build["target"] == "command" and "entrypoint" not in service:
                _accept(*service["command"])


def test_each_variable_of_the_trial_is_in_the_example() -> None:
    documented = re.findall(r"^(\w+)=$", (DEPLOY / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(documented) == set(re.findall(r"\$\{(\w+)", COMPOSE_TEXT))
    needed = set(re.findall(r"env\.(\w+)", (DEPLOY / "shop.yaml").read_text(encoding="utf-8")))
    assert needed <= set(COMPOSE["x-pipeline"])
    assert set(re.findall(r"\\getenv \w+ (\w+)", _shop_sql())) <= set(SERVICES["postgres"]["environment"])


def _shop_sql() -> str:
    return (DEPLOY / "shop.sql").read_text(encoding="utf-8")


@pytest.mark.postgres
def test_the_trial_replicates(database: Database, object_store: ObjectStore) -> None:
    """Its SQL by psql, its bucket, and its pipeline by the command of the image without Java."""
    psql = [str(psql_program()), "-v", "ON_ERROR_STOP=1", "--dbname", database.dsn]
    secret = {"CDC_PASSWORD": "of the trial"}
    subprocess.run([*psql, "--file", str(DEPLOY / "shop.sql")], env={**os.environ, **secret}, check=True)
    (script,) = SERVICES["bucket"]["command"]
    subprocess.run([sys.executable, "-c", script], check=True)
    dsn = COMPOSE["x-pipeline"]["SHOP_DSN"].replace("${CDC_PASSWORD:?see .env.example}", secret["CDC_PASSWORD"])
    dsn = dsn.replace("dbname=postgres", f"dbname={database.name}")
    dsn = dsn.replace("host=postgres", f"host=127.0.0.1 port={database.server.port}")
    lake = COMPOSE["x-pipeline"]["SHOP_LAKE"]
    command = Command(DEPLOY / "shop.yaml", {"SHOP_DSN": dsn, "SHOP_LAKE": lake})
    try:
        assert command("doctor", without_java=True).exit_code == 0
        assert command("sync", without_java=True).exit_code == 0
        database.execute("UPDATE orders SET state = 'paid' WHERE id <= 10", "DELETE FROM orders WHERE id > 990")
        (table,) = command("sync", "--json", without_java=True).document["tables"]
        assert (table["updates"], table["deletes"]) == (10, 10)
        assert command("verify", without_java=True).exit_code == 0
    finally:
        database.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'shop'",
            "DROP OWNED BY cdc",
            "DROP ROLE cdc",
        )
    assert any(request.startswith("PUT /lake/shop/change_log/") for request in object_store.requests)
