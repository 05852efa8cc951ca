"""``--dry-run`` of ``sync`` and ``recover``: what the command would do, without Java and without doing it."""

from __future__ import annotations

from datetime import timedelta

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.options import CommandFunction
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.terminal import counted, known, new_table, only_counted, told_apart
from spark_jobs.dry_run import DryRun, SnapshotToTake
from spark_jobs.readable_size import size


def dry_run_option(function: CommandFunction) -> CommandFunction:
    """``--dry-run``."""
    return click.option("--dry-run", is_flag=True, help="Show what would be done; do nothing.")(function)


def dry_run_outcome(plan: DryRun, *, everything: bool) -> Outcome:
    """A table that would stop is a problem here too."""
    return Outcome(plan, display(plan, everything=everything), plan.errors)


def display(plan: DryRun, *, everything: bool = False) -> RenderableType:
    lines = [Text(f"the slot no longer continues the change log: {plan.broken}", style="yellow")] if plan.broken else []
    lines += [Text(f"would create {one}") for one in plan.creates]
    lines += [Text(f"columns of {table.name}: {'; '.join(table.changes)}") for table in plan.columns]
    parts: list[RenderableType] = [*lines]
    if plan.snapshots:
        parts += [*([Text()] if lines else []), _snapshots(plan.snapshots, everything=everything)]
    if plan.lag_bytes is not None and not plan.broken:
        decoded = "" if plan.restart_bytes is None else f", for which the server decodes {size(plan.restart_bytes)}"
        parts += [*([Text()] if parts else []), Text(f"would capture {size(plan.lag_bytes)} of WAL{decoded}")]
    if plan.pending_changes:
        parts.append(Text(f"would apply {counted(plan.pending_changes, 'change')} that are in the change log already"))
    return Group(*parts, Text("nothing was done"))


def _snapshots(snapshots: tuple[SnapshotToTake, ...], *, everything: bool) -> RenderableType:
    listed, small = told_apart(snapshots, lambda table: (table.bytes or 0) < 1 << 20, everything=everything)
    shown = _table(listed)
    total = sum(table.bytes or 0 for table in snapshots)
    known = [table.seconds for table in snapshots if table.seconds is not None]
    reading = f"; reading alone takes about {timedelta(seconds=round(sum(known)))} at the pace of now" if known else ""
    summary = Text(f"would read {counted(len(snapshots), 'table')} of {size(total)}{reading}")
    counted_only = [only_counted(f"{len(small):,} tables of less than 1 MiB would be read")] if small else []
    return Group(*([shown] if listed else []), *counted_only, summary)


def _table(snapshots: tuple[SnapshotToTake, ...]) -> Table:
    shown = new_table("would be read", "rows", "size", "because", right=("rows", "size"))
    for table in snapshots:
        table_size = "–" if table.bytes is None else size(table.bytes)
        shown.add_row(Text(str(table.name)), known(table.rows), table_size, Text(table.reason))
    return shown
