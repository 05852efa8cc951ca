"""The password of ``source.dsn``, the salt of masked columns and the keys of an object store are nowhere but in the
environment of processes; masked values are not even there.

The commands run as in production, in processes of their own, under the role of the quick start, with Spark's web pages
and event logs on; then everything that they have said, shown and left is searched. Each place holds a word that must be
found in it, so that a search that finds nothing has looked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pyspark
import pytest
from psycopg.conninfo import conninfo_to_dict

from spark_jobs.configuration import MergeEngine
from spark_jobs.options.table_mask import SALT_VARIABLE
from tests.at_night import at_night
from tests.cli.command import Answer, Command, configured
from tests.documented_grants import TABLES, documented_role
from tests.fixtures.free_port import free_port
from tests.fixtures.servers import Database, fresh_database
from tests.spark.watched_processes import Seen, watched

if TYPE_CHECKING:
    from cdc_assets.demo.embedded_postgres import PostgresServer

# a dozen processes, some of them with a JVM: minutes on a machine that is busy with other tests
pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(1800)]

CANARY = f"canary{uuid.uuid4().hex}"
# spaces, quotes and signs that a connection string or a URI must escape
PASSWORD = f"{CANARY} '\\%@:/?#"
ROW = f"row{uuid.uuid4().hex}"
MASKED = "items"
STORE_KEYS = ("spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net")
FOLLOWED: tuple[str | Mapping[str, Any], ...] = tuple(
    {"name": f"public.{table}", "mask": {"note": "sha256"}} if table == MASKED else f"public.{table}"
    for table in TABLES
)
# what must be found, so that what is not found is not there
CONTROLS = {
    "printed": ("permission denied for table items", "password authentication failed"),
    "command lines": ("org.apache.spark.deploy.SparkSubmit", "CoarseGrainedExecutorBackend", "pyspark.daemon"),
    "web pages": ("spark.app.name", "planDescription", STORE_KEYS[0], "*********(redacted)"),
    "lake": (ROW, '"appId"', "public"),
    "events": ("SparkListenerApplicationStart", "SparkListenerTaskEnd", "permission denied", *STORE_KEYS),
    "home": ("STEP_FAILURE", "STEP_SUCCESS", "ASSET_MATERIALIZATION", "password authentication failed"),
}
DEFINITIONS = """
import json, os
import dagster as dg
from cdc_assets import PostgresCdcComponent

shop = PostgresCdcComponent.model_validate(json.loads(os.environ["SETTINGS"]))
defs = dg.Definitions.merge(shop.definitions(), dg.Definitions(executor=dg.in_process_executor))
"""


@dataclass(frozen=True)
class Trial:
    """``said``: by command, what it printed. ``folder``: lake, event logs, Dagster's home, what is left in TMPDIR."""

    said: Mapping[str, Answer]
    seen: Seen
    folder: Path


@pytest.fixture(scope="module", params=["auto", at_night("spark")])
def trial(
    request: pytest.FixtureRequest,
    server: PostgresServer,
    jars_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Trial]:
    """``auto``: only the run that takes the snapshots and the one in Dagster start Spark."""
    folder = tmp_path_factory.mktemp("secrets")
    for name in ("events", "tmp", "home"):
        (folder / name).mkdir()
    port = free_port()
    with fresh_database(server) as database:
        database.execute(
            *(f"CREATE TABLE {table} (id int PRIMARY KEY, note text)" for table in TABLES),
            *(
                f"INSERT INTO {table} SELECT g, '{CANARY if table == MASKED else ROW}' FROM generate_series(1, 9) g"
                for table in TABLES
            ),
            # more than the driver reads itself
            "ALTER TABLE items ALTER note SET STORAGE EXTERNAL",
            "INSERT INTO items SELECT g, repeat('-', 1000000) FROM generate_series(10, 15) g",
        )
        with documented_role(database, PASSWORD) as dsn, watched(port, folder / "tmp") as seen:
            journey = Journey(folder, database, dsn, _spark(folder, jars_folder, port), request.param)
            yield Trial(journey.said(), seen, folder)


def _spark(folder: Path, jars: Path, port: int) -> dict[str, Any]:
    config = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.local.dir": str(folder / "tmp"),
    }
    return {"master": "local[2]", "jars": str(jars), "config": config}


@dataclass(frozen=True)
class Journey:
    """The commands and the run in Dagster: those that are to be green, and those that are to fail."""

    folder: Path
    database: Database
    dsn: str
    spark: dict[str, Any]
    engine: MergeEngine

    def said(self) -> dict[str, Answer]:
        role = conninfo_to_dict(self.dsn)["user"]
        self.database.execute(f"REVOKE SELECT ON items FROM {role}")
        said = {"refused to an executor": self._command(master="local-cluster[1,1,1024]")("sync", "--verbose")}
        self.database.execute(f"GRANT SELECT ON items TO {role}", "UPDATE orders SET note = note || '!'")
        said |= {f"dagster {name}": self._dagster(dsn) for name, dsn in (("failing", self._wrong), ("green", self.dsn))}
        said |= {name: self._command()(name) for name in ("doctor", "verify", "maintain")}
        said["status"] = self._command(self._uri)("status")
        for name, wrong in (
            ("wrong database", f"{self.dsn} dbname=none"),
            ("unreachable", f"{self.dsn} port=1"),
            ("wrong password", self._wrong),
            ("not understood", f"{self.dsn} nonsense"),
        ):
            said[name] = self._command(wrong)("sync", "--verbose")
        return said

    @property
    def _wrong(self) -> str:
        return self.dsn.replace(CANARY, f"{CANARY}x")

    @property
    def _uri(self) -> str:
        given = conninfo_to_dict(self.dsn)
        return f"postgresql://{given['user']}:{quote(PASSWORD, safe='')}@127.0.0.1:{given['port']}/{given['dbname']}"

    def _command(self, dsn: str | None = None, **spark: str) -> Command:
        keys = dict.fromkeys(STORE_KEYS, "{{ env.STORE_KEY }}")
        options = {**self.spark, **spark, "config": {**self.spark["config"], **keys}}
        command = configured(
            self.folder, dsn or self.dsn, self.database.name, FOLLOWED, spark=options, merge={"engine": self.engine}
        )
        return replace(command, environment={**command.environment, **self._environment}, forked=False)

    @property
    def _environment(self) -> dict[str, str]:
        secrets = {"STORE_KEY": f"{CANARY}-store", SALT_VARIABLE: f"{CANARY}-salt"}
        return {**secrets, "TMPDIR": str(self.folder / "tmp")}

    def _dagster(self, dsn: str) -> Answer:
        """One run as Dagster's own command executes it, in a home of its own."""
        keys = dict.fromkeys(STORE_KEYS, f"{CANARY}-store")
        settings = {
            "name": self.database.name,
            "source": {"dsn": dsn},
            "lake": {"path": str(self.folder / "lake")},
            "tables": FOLLOWED,
            "spark": {**self.spark, "config": {**self.spark["config"], **keys}},
        }
        definitions = self.folder / "definitions.py"
        definitions.write_text(DEFINITIONS)
        environment = {"SETTINGS": json.dumps(settings), "DAGSTER_HOME": str(self.folder / "home")}
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "dagster",
                "job",
                "execute",
                "-f",
                definitions,
                "-j",
                f"{self.database.name}_snapshot",
            ],
            capture_output=True,
            text=True,
            env={**os.environ, **self._environment, **environment},
            timeout=300,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr, "")


def places(trial: Trial) -> Mapping[str, str]:
    """All that can be read, by where it was found."""
    found = {
        "printed": "\n".join(answer.stdout + answer.stderr for answer in trial.said.values()),
        "command lines": "\n".join(trial.seen.command_lines),
        "web pages": "\n".join(trial.seen.pages.values()),
        "passing files": "\n".join(trial.seen.files.values()),
    }
    for part in trial.folder.iterdir():
        files = part.rglob("*") if part.is_dir() else [part]
        found[part.name] = "\n".join(text for file in files if file.is_file() for text in _texts(file))
    work = Path(str(pyspark.__file__)).parent / "work"  # where local clusters keep what executors print
    found["executors"] = "\n".join(text for file in work.glob("app-*/*/std*") for text in _texts(file))
    return found


def _texts(file: Path) -> Iterator[str]:
    """Its name, its bytes, and the values that compression hides."""
    yield f"{file}\n{file.read_bytes().decode(errors='replace')}"
    if file.suffix == ".parquet":
        yield str(pq.ParquetFile(file).read().to_pydict())


def test_each_command_did_what_it_was_to_do(trial: Trial) -> None:
    green = {"dagster green", "doctor", "verify", "maintain", "status"}
    for name, answer in trial.said.items():
        assert (answer.exit_code == 0) == (name in green), f"{name}: {answer.stdout}\n{answer.stderr}"
    for name, words in (
        ("refused to an executor", "permission denied for table items"),
        ("wrong database", 'database "none" does not exist'),
        ("unreachable", "Connection refused"),
        ("wrong password", "password authentication failed"),
        ("not understood", "source.dsn is not a PostgreSQL connection string"),
    ):
        assert words in trial.said[name].stderr


def test_every_place_is_looked_at(trial: Trial) -> None:
    found = places(trial)
    missing = {place: word for place, words in CONTROLS.items() for word in words if word not in found[place]}
    assert missing == {}


def test_the_secrets_are_nowhere(trial: Trial) -> None:
    assert {place for place, text in places(trial).items() if CANARY in text} == set()
