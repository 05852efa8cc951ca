"""A pipeline whose lake is on an S3 server, for the command and for programs of ``on_s3``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_jobs.configuration import MergeEngine
from spark_jobs.spark.delta_jars import fill_folder
from tests.cli.command import Command, configured
from tests.fixtures.s3_server import S3Server
from tests.fixtures.servers import Database

_JARS = Path(__file__).parents[2] / ".cache" / "jars-s3"
_SECONDS = 1500


def on_s3(
    folder: Path,
    database: Database,
    s3: S3Server,
    tables: Sequence[str | Mapping[str, Any]],
    engine: MergeEngine = "spark",
    config: Mapping[str, str] | None = None,
) -> Command:
    """Its configuration is in ``folder``; ``config`` is that of Spark."""
    fill_folder(_JARS, "s3")
    folder.mkdir(exist_ok=True)
    made = configured(
        folder,
        database.dsn,
        database.name,
        tables,
        lake={"path": f"s3://{s3.bucket}/{database.name}", "storage": s3.storage},
        merge={"engine": engine},
        spark={"jars": str(_JARS), "master": "local[2]", "config": dict(config or {})},
    )
    return Command(made.configuration, made.environment | s3.environment)


def started(command: Command, *programs: str) -> subprocess.Popen[str]:
    """Programs of ``on_s3``, each with its arguments after it, with the configuration of ``command``."""
    called = [sys.executable, "-m", "tests.spark.on_s3", str(command.configuration), *programs]
    return subprocess.Popen(called, env=os.environ | command.environment, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> Any:
    """What each of them returns."""
    said, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0
    return json.loads(said)
