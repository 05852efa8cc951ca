"""``postgres-cdc snapshot``: new snapshots of tables, all at one exact LSN."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from cdc_assets.cli.chosen_tables import chosen_tables, table_option_or_arguments
from cdc_assets.cli.old_spellings import OLD_SPELLING_ENDS
from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.table_reports import snapshot_table
from cdc_assets.cli.terminal import Terminal
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.prepare import prepare
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.tables.followed_tables import configured_names, require_followed


@dataclass(frozen=True)
class SnapshotReport:
    """The snapshots of one call."""

    snapshots: tuple[TableSnapshot, ...]


@click.command("snapshot")
@config_option
@table_option_or_arguments
@click.option("--all", "every", is_flag=True, help="All tables.")
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, tables: tuple[TablePattern, ...], every: bool) -> Outcome:
    """Create or replace Delta tables with the source as it is at one LSN.

    Creates publication and slot if they are missing. `sync` takes missing snapshots itself. Give --table or --all;
    otherwise it asks before it reads all tables again.
    """
    if every and tables:
        raise click.UsageError("--all and --table exclude each other")
    if not every and not tables and not _is_meant(terminal):
        return Outcome(None, "", failed=True)
    pipeline = load_pipeline(config)
    chosen = chosen_tables(pipeline, tables) or ()
    configured = configured_names(pipeline)
    if configured is not None:  # check before anything is created
        require_followed(chosen, configured)
    prepared = prepare(pipeline)
    stopped = {table.name: table.error for table in prepared.stopped}
    require_followed(chosen, (*prepared.tables, *stopped))
    names = [name for name in chosen or prepared.tables if name not in stopped]
    with lazy_session(pipeline.spark) as spark, terminal.progress() as progress:
        run = Run(pipeline, spark, progress=progress)
        report = SnapshotReport(snapshot(run, names) if names else ())
    errors = [error for name, error in stopped.items() if not chosen or name in chosen]
    errors += [table.error for table in report.snapshots if table.error]
    return Outcome(report, snapshot_table(report.snapshots, everything=terminal.choice.verbose), tuple(errors))


def _is_meant(terminal: Terminal) -> bool:
    """Whether all tables are to be read, as neither ``--table`` nor ``--all`` says so."""
    if terminal.can_ask:
        return click.confirm("Take new snapshots of all tables?", err=True)
    terminal.deprecated(f"write --all for snapshots of all tables; {OLD_SPELLING_ENDS}")
    return True
