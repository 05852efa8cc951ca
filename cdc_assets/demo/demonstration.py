"""The whole demo, on one machine: a busy PostgreSQL 18 followed into a lake, then compared row by row."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from pydantic import SecretStr

from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.demo.demo_folder import DSN_VARIABLE, begin_anew, lake_of, require_own_folder
from cdc_assets.demo.demo_report import DemoReport, KeptServer, alterations, changes_of, table_result
from cdc_assets.demo.demo_server import keep_server, load_demo, new_server
from cdc_assets.demo.embedded_postgres import PostgresServer
from cdc_assets.demo.pgbench import running_pgbench
from cdc_assets.demo.shop_load import ShopLoad
from cdc_assets.demo.shop_schema import SHOP_ALTERATIONS, TABLES
from spark_jobs.configuration import Pipeline
from spark_jobs.progress import Progress
from spark_jobs.spark.provider import SparkProvider
from spark_jobs.status import pipeline_status
from spark_jobs.sync import SyncReport, sync
from spark_jobs.verify.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUNDS = len(SHOP_ALTERATIONS)  # syncs while the load runs


@dataclass(frozen=True)
class DemoOptions:
    """``scale`` is pgbench's: 100,000 accounts each. ``rate``: pgbench's transactions a second. ``seconds``: how long
    the load runs at least after the snapshot. ``folder`` receives the lake and the configuration; ``jars``: see
    ``spark.jars``. ``keep``: the server runs until ``postgres-cdc demo --stop``; otherwise it is stopped and
    deleted."""

    folder: Path
    jars: str = "packages"
    scale: int = 10
    rate: int = 200
    seconds: int = 30
    keep: bool = False


def demonstrate(
    options: DemoOptions, spark: SparkProvider, say: Callable[[str], None], progress: Progress
) -> DemoReport:
    """Run the demo; ``say`` gets a line for each step.

    Raises ConfigurationError if there is no embedded PostgreSQL, or if ``folder`` holds something else; CdcError as
    sync does.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        require_own_folder(options.folder)
        say("starting PostgreSQL 18")
        server = stack.enter_context(new_server(options.folder))
        say(f"loading pgbench (scale {options.scale}: {options.scale * 100_000:,} accounts) and a small shop")
        load_demo(server, options.scale)
        configuration = begin_anew(options.folder, options.jars)
        os.environ[DSN_VARIABLE] = server.dsn()
        pipeline = load_pipeline(configuration)
        session = spark()
        syncs = _under_load(server, options, pipeline, session, say, progress)
        before = pipeline_status(pipeline)
        say("load stopped; last sync")
        syncs.append(_synced(pipeline, session, progress))
        after = pipeline_status(pipeline)
        say("comparing source and lake, row by row")
        verified = verify(pipeline, lambda: session, TABLES, progress=progress)
        if options.keep:
            keep_server(options.folder, server, running=True)
    return DemoReport(
        tables=tuple(table_result(table, syncs, before, after) for table in verified.tables),
        lake=lake_of(options.folder),
        configuration=configuration,
        kept=KeptServer(SecretStr(server.dsn()), server.binaries) if options.keep else None,
        windows=sum(len(each.windows) for each in syncs),
        followed_changes=sum(map(changes_of, syncs[1:])),
        snapshot_seconds=syncs[0].seconds,
        sync_seconds=sum(each.seconds for each in syncs[1:]),
        seconds=time.monotonic() - began,
    )


def _under_load(
    server: PostgresServer,
    options: DemoOptions,
    pipeline: Pipeline,
    session: SparkSession,
    say: Callable[[str], None],
    progress: Progress,
) -> list[SyncReport]:
    """Snapshot and follow while both loads run. The first sync takes the snapshots."""
    say(f"load started: pgbench at {options.rate} transactions a second, and the shop")
    with running_pgbench(server, "postgres", rate=options.rate), ShopLoad(server.dsn()) as load:
        say("first sync: publication, slot, snapshot of every table while it changes")
        syncs = [_synced(pipeline, session, progress)]
        for number, alteration in enumerate(SHOP_ALTERATIONS, start=1):
            time.sleep(options.seconds / _ROUNDS)
            _alter(server, alteration, say)
            report = _synced(pipeline, session, progress)
            syncs.append(report)
            say(f"sync {number} under load: {changes_of(report):,} changes, {report.seconds:.1f} s")
            for line in alterations(report):
                say(line)
        time.sleep(options.seconds / _ROUNDS)
        say(f"the shop made {load.transactions:,} transactions")
    return syncs


def _alter(server: PostgresServer, alteration: str, say: Callable[[str], None]) -> None:
    for statement in alteration.split(";\n"):
        say(statement)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(alteration)


def _synced(pipeline: Pipeline, session: SparkSession, progress: Progress) -> SyncReport:
    report = sync(pipeline, lambda: session, progress=progress)
    for error in report.errors:
        raise error
    return report
