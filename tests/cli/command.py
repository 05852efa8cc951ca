"""The real command in a process of its own, and a configuration file for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

import cdc_assets.cli
from spark_jobs.spark import own_jvm, session
from tests.fixtures.forked_programs import run_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DSN_VARIABLE = "POSTGRES_CDC_TEST_DSN"
PROGRAM = "cdc_assets.cli"
SPARK = {"engine": "spark"}
SCHEMAS = Path(cdc_assets.cli.__file__).parent / "schemas"


@dataclass(frozen=True)
class Answer:
    """What a call of the command left behind."""

    exit_code: int
    stdout: str
    stderr: str
    command: str

    @property
    def document(self) -> Any:
        """Stdout as the one JSON document that it must be, in the form that the command's schema promises."""
        document = json.loads(self.stdout)
        schema = json.loads((SCHEMAS / f"{self.command}.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(document)
        return document

    @property
    def problem(self) -> str:
        """The one line of stderr that says what happened."""
        line, *hint = self.stderr.splitlines()
        assert line.startswith("postgres-cdc: ")
        assert all(line.startswith("hint: ") for line in hint)
        assert len(hint) <= 1
        return line.removeprefix("postgres-cdc: ")

    @property
    def hint(self) -> str:
        """The line of stderr that says what to do; empty if there is none."""
        return self.stderr.rpartition("\nhint: ")[2].removesuffix("\n") if "\nhint: " in self.stderr else ""


@dataclass(frozen=True)
class Command:
    """``postgres-cdc`` on one configuration file, with this in the environment. ``forked``: others do not see its
    command line, and it starts two seconds earlier."""

    configuration: Path
    environment: dict[str, str]
    forked: bool = field(default=True, kw_only=True)

    def __call__(self, name: str, *options: str, without_java: bool = False) -> Answer:
        environment = {**os.environ, **self.environment}
        if without_java:
            environment |= {"JAVA_HOME": "/nonexistent", "PATH": "/nonexistent"}
        arguments = (name, "--config", str(self.configuration), *options)
        if self.forked:
            answer = run_program(PROGRAM, *arguments, environment=environment, timeout=300)
        else:
            command = [sys.executable, "-m", PROGRAM, *arguments]
            answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        return Answer(answer.returncode, answer.stdout, answer.stderr, name)


@dataclass(frozen=True)
class CommandHere(Command):
    """The same, run by this process with the Spark session that it has: another JVM costs ten seconds of CPU time."""

    spark: SparkSession
    printed: pytest.CaptureFixture[str]

    def __call__(self, name: str, *options: str, without_java: bool = False) -> Answer:
        assert not without_java
        with pytest.MonkeyPatch.context() as patched:
            for variable, value in self.environment.items():
                patched.setenv(variable, value)
            patched.setattr(session, "spark_session", lambda *_, **__: self.spark)
            patched.setattr(own_jvm, "end_session", lambda *_, **__: None)
            self.printed.readouterr()
            exit_code = cdc_assets.cli.run([name, "--config", str(self.configuration), *options])
        return Answer(exit_code, *self.printed.readouterr(), name)


def run_here(command: Command, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> CommandHere:
    """``command`` by this process, from now on."""
    return CommandHere(command.configuration, command.environment, spark, capfd)


def configured(folder: Path, dsn: str, name: str, tables: Sequence[str | Mapping[str, Any]], **changes: Any) -> Command:
    """A configuration file in ``folder`` with its lake beside it; ``changes`` are laid over its attributes.

    ``merge=SPARK`` where Spark itself is what is tested: each command then starts a JVM.
    """
    attributes: dict[str, Any] = {
        "name": name,
        "source": {"dsn": "{{ env." + DSN_VARIABLE + " }}"},
        "lake": {"path": str(folder / "lake")},
        "tables": list(tables),
        "merge": {"engine": "auto"},
        **changes,
    }
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump({"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}))
    return Command(file, {DSN_VARIABLE: dsn})
