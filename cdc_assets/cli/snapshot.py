"""``postgres-cdc snapshot``: new snapshots of tables, all at one exact LSN."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from cdc_assets.cli.options import all_option, config_option, output_options, read_table_names
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.table_reports import snapshot_table
from cdc_assets.cli.terminal import Terminal
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.sync import prepare, snapshot
from spark_jobs.tables.followed_tables import configured_names, require_followed


@dataclass(frozen=True)
class SnapshotReport:
    """The snapshots of one call."""

    snapshots: tuple[TableSnapshot, ...]


@click.command("snapshot")
@config_option
@click.argument("tables", nargs=-1, callback=read_table_names)
@all_option
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, tables: tuple[QualifiedName, ...], everything: bool) -> Outcome:
    """Create or replace the Delta tables of TABLES (default: all) with the source as it is at one LSN.

    Creates publication and slot if they are missing. `sync` takes missing snapshots itself.
    """
    pipeline = load_pipeline(config)
    configured = configured_names(pipeline)
    if configured is not None:  # check before anything is created
        require_followed(tables, configured)
    prepared = prepare(pipeline)
    stopped = {table.name: table.error for table in prepared.stopped}
    require_followed(tables, (*prepared.tables, *stopped))
    wanted = [name for name in tables or prepared.tables if name not in stopped]
    with lazy_session(pipeline.spark) as spark, terminal.progress() as progress:
        report = SnapshotReport(snapshot(spark, pipeline, wanted, progress=progress) if wanted else ())
    errors = [error for name, error in stopped.items() if not tables or name in tables]
    errors += [table.error for table in report.snapshots if table.error]
    return Outcome(report, snapshot_table(report.snapshots, everything=everything), tuple(errors))
