"""``postgres-cdc sync``: all steps, in the right order; the one command for cron."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from cdc_assets.cli.dry_run import dry_run_option, dry_run_outcome
from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.table_reports import (
    applied_table,
    columns_followed,
    modes_changed,
    partitions_read,
    snapshot_table,
    tables_waiting,
    unrepresentable_values,
)
from cdc_assets.cli.terminal import Terminal, counted, paragraphs
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.dry_run import plan_sync
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.readable_size import size
from spark_jobs.sync import SyncReport, sync


@click.command("sync")
@config_option
@dry_run_option
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, dry_run: bool) -> Outcome:
    """Bring every table up to the source: create what is missing, capture, apply.

    Creates publication, slot and snapshots if they are missing, then takes the windows up to the WAL that is flushed.
    Exit code 0 means caught up. Run it again at any time, after any crash. A table that must stop stops only itself:
    the others are brought up to date, and the exit code is 1. A table whose snapshot waits for an open transaction of
    somebody else is named, with that transaction; the next sync takes the snapshot.
    """
    pipeline = load_pipeline(config)
    if dry_run:
        return dry_run_outcome(plan_sync(pipeline), everything=terminal.choice.verbose)
    with lazy_session(pipeline.spark, may_be_brief=True) as spark, terminal.progress() as progress:
        report = sync(pipeline, spark, progress=progress)
    return Outcome(report, _display(report, terminal.choice.verbose), tuple(report.errors))


def _display(report: SyncReport, everything: bool = False) -> RenderableType:
    changes = sum(marker.changes for marker in report.windows)
    tables = per_table(report.tables)
    return paragraphs(
        snapshot_table(report.snapshots, everything=everything) if report.snapshots else None,
        modes_changed(report.modes),
        applied_table(tables, report.messages, everything=everything),
        columns_followed(tables),
        partitions_read(tables),
        unrepresentable_values([*report.snapshots, *tables]),
        tables_waiting(report.waiting),
        Text(
            f"{counted(len(report.windows), 'window')} with {counted(changes, 'change')} in {report.seconds:.1f} s; "
            f"{size(report.lag_bytes_before)} behind before, {size(report.lag_bytes)} now"
        ),
    )


def per_table(applied: Iterable[TableApplied]) -> tuple[TableApplied, ...]:
    """One line per table: the rounds of a long sync added up, with the end and outcome of the last one."""
    rounds: dict[QualifiedName, TableApplied] = {}
    for table in applied:
        rounds[table.name] = table.after(rounds.get(table.name))
    return tuple(rounds.values())
