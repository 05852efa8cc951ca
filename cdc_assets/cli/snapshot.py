"""``postgres-cdc snapshot``: tables read anew, all at one exact LSN."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from cdc_assets.cli.options import config_option, output_options, read_table_names
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.table_reports import snapshot_table
from cdc_assets.cli.terminal import Terminal
from cdc_assets.configuration import load_pipeline
from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot import TableSnapshot
from spark_jobs.sync import prepare, snapshot


@dataclass(frozen=True)
class SnapshotReport:
    """What one call of ``snapshot`` read."""

    snapshots: tuple[TableSnapshot, ...]


@click.command("snapshot")
@config_option
@click.argument("tables", nargs=-1, callback=read_table_names)
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, tables: tuple[QualifiedName, ...]) -> Outcome:
    """Create or replace the Delta tables of TABLES (default: all) with the source as it is at one LSN.

    Makes publication and slot where they are missing. `sync` does this by itself for tables that have no snapshot.
    """
    pipeline = load_pipeline(config)
    prepared = prepare(pipeline)
    unknown = [str(name) for name in tables if name not in prepared.tables]
    if unknown:
        followed = ", ".join(map(str, prepared.tables))
        raise ConfigurationError(f"not followed by this pipeline: {', '.join(unknown)}", hint=f"it follows {followed}")
    with lazy_session(pipeline.spark) as spark, terminal.progress() as progress:
        report = SnapshotReport(snapshot(spark, pipeline, tables or None, progress=progress))
    problems = tuple(str(table.error) for table in report.snapshots if table.error)
    return Outcome(report, snapshot_table(report.snapshots), problems)
