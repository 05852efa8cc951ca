"""What a Dagster run of ``{name}_sync`` costs, as a daemon starts it: a process of its own that loads the definitions.

With a JVM of its own in each run, and with a Spark Connect server that runs all the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import psycopg

from benchmarks.measurement import Measurement, timed
from benchmarks.workload import make_table
from cdc_assets import PostgresCdcComponent
from cdc_assets.demo.embedded_postgres import PostgresServer
from spark_jobs.qualified_name import QualifiedName
from tests.fixtures.spark_connect import connect_server

_CHANGES = 10
_ROWS = 1000
_REPEATS = 3
# the first runs are not measured: the second makes the archive of Spark's classes, a server loads and compiles its code
_WARM_UP = 2
_DEFINITIONS = """\
import json
from pathlib import Path

from cdc_assets import PostgresCdcComponent

attributes = json.loads(Path(__file__).with_suffix(".json").read_text())
defs = PostgresCdcComponent.model_validate(attributes).definitions()
"""


def measure_dagster_runs(server: PostgresServer, folder: Path, jars: str) -> Iterator[Measurement]:
    """The median seconds of three runs each."""
    yield _measured("a JVM in each run", _Project(server, folder / "own_jvm", {"jars": jars}))
    with connect_server(folder, Path(jars)) as spark:
        yield _measured("a Spark Connect server", _Project(server, folder / "connect", {"remote": spark.url}))


def _measured(how: str, project: _Project) -> Measurement:
    project.run(project.name + "_snapshot", {})
    seconds = [project.sync_of_ten_changes(turn) for turn in range(_WARM_UP + _REPEATS)]
    return Measurement(
        f"dagster: run of {_CHANGES} changes, {how}", sorted(seconds[_WARM_UP:])[_REPEATS // 2], _CHANGES
    )


class _Project:
    """A file of definitions with one pipeline of one table, and a Dagster instance on SQLite."""

    def __init__(self, server: PostgresServer, folder: Path, spark: dict[str, str]) -> None:
        self.server, self.folder, self.name = server, folder, folder.name
        self.table = QualifiedName("public", f"dagster_{self.name}")
        make_table(server, self.table, _ROWS)
        attributes = {
            "name": self.name,
            "source": {"dsn": server.dsn()},
            "lake": {"path": str(folder / "lake")},
            "tables": [str(self.table)],
            "spark": spark,
        }
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        (folder / "definitions.py").write_text(_DEFINITIONS)
        (folder / "definitions.json").write_text(json.dumps(attributes))
        self.definitions = PostgresCdcComponent.model_validate(attributes).definitions()

    def sync_of_ten_changes(self, turn: int) -> float:
        """The seconds of the run that the schedule asks for."""
        with psycopg.connect(self.server.dsn()) as connection:
            connection.execute(f"UPDATE {self.table} SET n = n + 1 WHERE id % {_ROWS // _CHANGES} = {turn}")
        with self._instance() as instance:
            schedule = self.definitions.resolve_schedule_def(f"{self.name}_sync")
            tick = schedule.evaluate_tick(dg.build_schedule_context(instance=instance))
            (request,) = tick.run_requests or []
        return timed(lambda: self.run(f"{self.name}_sync", dict(request.tags)))[1]

    def run(self, job: str, tags: dict[str, str]) -> None:
        """In a process of its own, like a run that the daemon has started."""
        call = [sys.executable, "-m", "dagster", "job", "execute", "--python-file", "definitions.py", "--job", job]
        environ = {**os.environ, "DAGSTER_HOME": str(self.home)}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        with (self.folder / "runs.log").open("ab") as log:
            call += ["--tags", json.dumps(tags)]
            subprocess.run(call, cwd=self.folder, env=environ, stdout=log, stderr=log, check=True)

    @contextmanager
    def _instance(self) -> Iterator[dg.DagsterInstance]:
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            yield instance
