"""The whole demo, on one machine: a busy PostgreSQL 18 followed into a lake, then compared row by row."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import yaml

from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.demo_report import DemoReport, Tally, table_result
from cdc_assets.demo.demo_server import is_demo, keep_server, load_demo, new_server
from cdc_assets.demo.embedded_postgres import PostgresServer
from cdc_assets.demo.pgbench import running_pgbench
from cdc_assets.demo.shop_load import ShopLoad
from cdc_assets.demo.shop_schema import (
    PGBENCH_TABLES,
    SHOP_ALTERATIONS,
    SHOP_TABLES,
)
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import ConfigurationError
from spark_jobs.progress import Progress
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.status import pipeline_status
from spark_jobs.sync import sync
from spark_jobs.verify.row_compare import compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = (*PGBENCH_TABLES, *SHOP_TABLES)
DAGSTER_HOME = "dagster_home"  # in the demo's folder: the instance in which ``make ui`` shows it
_DSN_VARIABLE = "POSTGRES_CDC_DEMO_DSN"
_ROUNDS = len(SHOP_ALTERATIONS)  # syncs while the load runs


@dataclass(frozen=True)
class DemoOptions:
    """``scale`` is pgbench's: 100,000 accounts each. ``rate``: pgbench's transactions a second. ``seconds``: how long
    the load runs at least after the snapshot. ``folder`` receives the lake and the configuration; ``jars``: see
    ``spark.jars``. ``keep_server``: its data is kept for ``make ui``, else deleted at the end."""

    folder: Path
    jars: str = "packages"
    scale: int = 10
    rate: int = 200
    seconds: int = 30
    keep_server: bool = False


def demonstrate(
    options: DemoOptions, spark: SparkProvider, say: Callable[[str], None], progress: Progress
) -> DemoReport:
    """Run the demo; ``say`` gets a line for each step. The server is stopped at the end.

    Raises ConfigurationError if there is no embedded PostgreSQL, or if ``folder`` holds something else; CdcError as
    sync does.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        _require_own_folder(options.folder)
        say("starting PostgreSQL 18")
        server = stack.enter_context(new_server(options.folder))
        say(f"loading pgbench (scale {options.scale}: {options.scale * 100_000:,} accounts) and a small shop")
        load_demo(server, options.scale)
        pipeline = _pipeline(options, server.dsn())
        session = spark()
        tally = Tally()
        snapshot_seconds = _under_load(server, options, pipeline, session, tally, say, progress)
        before = pipeline_status(pipeline)
        say("load stopped; last sync")
        _timed_sync(pipeline, session, tally, progress)
        after = pipeline_status(pipeline)
        say("comparing source and lake, row by row")
        comparisons = compare(session, pipeline, TABLES)
        if options.keep_server:
            keep_server(options.folder, server)
    return DemoReport(
        tables=tuple(table_result(comparison, tally, before, after) for comparison in comparisons),
        lake=options.folder / "lake",
        configuration=options.folder / "shop.yaml",
        windows=tally.windows,
        snapshot_seconds=snapshot_seconds,
        sync_seconds=tally.seconds,
        seconds=time.monotonic() - began,
    )


def _under_load(
    server: PostgresServer,
    options: DemoOptions,
    pipeline: Pipeline,
    session: SparkSession,
    tally: Tally,
    say: Callable[[str], None],
    progress: Progress,
) -> float:
    """Snapshot and follow while both loads run. Returns the seconds of the first sync, snapshots included."""
    say(f"load started: pgbench at {options.rate} transactions a second, and the shop")
    with running_pgbench(server, "postgres", rate=options.rate), ShopLoad(server.dsn()) as load:
        say("first sync: publication, slot, snapshot of every table while it changes")
        first = _timed_sync(pipeline, session, tally, progress)
        tally.seconds = 0.0  # the snapshot does not count towards the speed of following
        tally.changes.clear()
        for number, alteration in enumerate(SHOP_ALTERATIONS, start=1):
            time.sleep(options.seconds / _ROUNDS)
            _alter(server, alteration, say)
            known = tally.alterations
            seconds = _timed_sync(pipeline, session, tally, progress)
            say(
                f"sync {number} under load: {tally.windows} windows, {tally.changes.total():,} changes, {seconds:.1f} s"
            )
            for line in tally.alterations[len(known) :]:
                say(line)
        time.sleep(options.seconds / _ROUNDS)
        say(f"the shop made {load.transactions:,} transactions")
    return first


def _alter(server: PostgresServer, alteration: str, say: Callable[[str], None]) -> None:
    for statement in alteration.split(";\n"):
        say(statement)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(alteration)


def _timed_sync(pipeline: Pipeline, session: SparkSession, tally: Tally, progress: Progress) -> float:
    began = time.monotonic()
    report = sync(pipeline, lambda: session, progress=progress)
    seconds = time.monotonic() - began
    tally.add(report, seconds)
    return seconds


def _require_own_folder(folder: Path) -> None:
    """What is deleted there must be an earlier demo's."""
    if folder.is_dir() and any(folder.iterdir()) and not is_demo(folder):
        raise ConfigurationError(f"{folder} is not empty", hint="name a new folder with --folder")


def _pipeline(options: DemoOptions, dsn: str) -> Pipeline:
    """Written to a file and read back, like a user's."""
    file, lake = options.folder / "shop.yaml", options.folder / "lake"
    options.folder.mkdir(parents=True, exist_ok=True)
    for earlier in (lake, options.folder / DAGSTER_HOME):
        shutil.rmtree(earlier, ignore_errors=True)
    attributes = {
        "name": "shop",
        "source": {"dsn": "{{ env." + _DSN_VARIABLE + " }}"},
        "lake": {"path": str(lake.resolve())},
        "windows": {"max_bytes": "2MiB", "max_per_run": 1000},
        "tables": [str(name) for name in TABLES],
        "merge": {"engine": "auto"},
        "spark": {"jars": options.jars},
    }
    document = {"type": "cdc_assets.PostgresCdcComponent", "attributes": attributes}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    os.environ[_DSN_VARIABLE] = dsn
    return load_pipeline(file)
