"""``postgres-cdc status``: how far slot, change log and tables are, without Spark."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.options import config_option, output_options_with_metrics
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.prometheus import prometheus_text
from cdc_assets.cli.terminal import Terminal, counted, known, lines, new_table, only_counted, paragraphs, told_apart
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.errors import CdcError, why_read
from spark_jobs.lake.unrepresentable import Unrepresentable
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_mode import keeps_past
from spark_jobs.postgres.published_tables import unseen_operations
from spark_jobs.readable_size import size
from spark_jobs.status import MessagesStatus, PipelineStatus, TableStatus, pipeline_status

_UNKNOWN = "–"
_WAITS = Text("waits for its snapshot", style="yellow")
_STYLES = {"warn": "yellow", "error": "bold red"}


@click.command("status")
@config_option
@output_options_with_metrics
@click.pass_obj
def command(terminal: Terminal, config: Path) -> Outcome:
    """Show how far slot, change log and tables are. Needs no Java; changes nothing.

    Values beyond the thresholds of `health` are shown in a line each, and do not change the exit code. Prometheus's
    text format is meant for node_exporter's textfile collector.
    """
    status = pipeline_status(load_pipeline(config))
    if terminal.choice.form == "prometheus":
        return Outcome(status, prometheus_text(status), tuple(status.errors))
    display = _display(status, terminal.choice.verbose)
    return Outcome(status, display, tuple(status.errors))


def _display(status: PipelineStatus, everything: bool = False) -> RenderableType:
    tables = status.tables
    findings = (Text(f"{each.severity}: {each.text}", style=_STYLES[each.severity]) for each in status.findings)
    listed, well = told_apart(tables, _is_well, everything=everything)
    read = ((table.name, table.partitions) for table in tables if table.partitions is not None)
    replaced = ((table.name, Unrepresentable(table.unrepresentable)) for table in tables)
    return paragraphs(
        Group(_slot_and_log(status), *findings),
        _tables(listed, status.messages) if listed or status.messages is not None or not well else None,
        only_counted(f"{len(well):,} tables are up to the log") if well else None,
        lines(
            (
                f"{table.name} waits for its snapshot: the transaction {table.waits_for} must end first"
                for table in tables
                if table.waits_for is not None
            ),
            style="yellow",
        ),
        lines(
            (
                f"{t.name}, at {t.snapshot_lsn}: {why_read(t.name, t.snapshot_reason)}"
                for t in tables
                if t.snapshot_reason
            ),
            heading="tables that were read again because of a change:",
        ),
        lines(
            (f"{name}: {one.reason}: {one.rows:,} rows read again at {one.lsn}" for name, one in read),
            heading="partitions that were read again, without the rest of their tables:",
        ),
        lines(
            (f"{t.name}: {unseen_operations(t.missing_operations)}" for t in tables if t.missing_operations),
            style="yellow",
        ),
        lines(
            (f"{table.name}: {'; '.join(table.differing.words)}" for table in tables if table.differing),
            heading="columns that differ from the source's, by on_schema_change:",
        ),
        lines((f"{name}: {values.words}" for name, values in replaced if values), style="yellow"),
    )


def _slot_and_log(status: PipelineStatus) -> Table:
    facts = Table.grid(padding=(0, 2))
    facts.add_row("lake", Text(status.lake))
    if slot := status.slot:
        facts.add_row(
            f"slot {slot.slot_name}",
            f"confirmed {slot.confirmed_flush_lsn}, {_bytes(slot.confirmed_flush_bytes)} behind; the server keeps "
            f"{_bytes(slot.restart_bytes)} of WAL for it ({slot.wal_status}"
            + (f", {size(slot.safe_wal_size)} left" if slot.safe_wal_size is not None else "")
            + ")",
        )
        if slot.invalidation_reason:
            facts.add_row("", Text(f"invalidated: {slot.invalidation_reason}", style="bold red"))
        if slot.active:
            facts.add_row("", f"being read by server process {slot.active_pid}")
        if slot.oldest_transaction is not None:
            facts.add_row("oldest transaction", Text(str(slot.oldest_transaction)))
        facts.add_row("replication slots", f"{slot.free_replication_slots} free")
    elif status.source_error is None:
        facts.add_row("slot", "does not exist yet: run sync")
    if log := status.log:
        late = "" if log.lag_seconds is None else f", {log.lag_seconds:,.0f} s"
        behind = f"{_bytes(log.lag_bytes)}{late} behind"
        facts.add_row("change log", f"{counted(log.landed_windows, 'window')}, up to {log.landed_end}, {behind}")
    else:
        facts.add_row("change log", "does not exist yet: run sync")
    return facts


def _tables(tables: tuple[TableStatus, ...], messages: MessagesStatus | None) -> Table:
    figures = ("behind", "windows", "changes", "Delta version")
    shown = new_table("table", "snapshot", "applied through", *figures, "state", right=figures)
    for table in tables:
        shown.add_row(
            Text(f"{table.name} ({table.mode})" if keeps_past(table.mode) else str(table.name)),
            str(table.snapshot_lsn or _UNKNOWN),
            str(table.applied_lsn or _UNKNOWN),
            _bytes(table.lag_bytes),
            *map(known, (table.pending_windows, table.pending_changes, table.delta_version)),
            _WAITS if table.waits_for is not None else _state_of(table),
        )
    if messages is not None:
        shown.add_row(
            "_messages",
            _UNKNOWN,
            str(messages.applied_lsn or _UNKNOWN),
            _bytes(messages.lag_bytes),
            *map(known, (messages.pending_windows, messages.pending_messages, messages.delta_version)),
            _state(messages.error, messages.applied_lsn, messages.pending_messages, "does not exist yet"),
        )
    return shown


def _is_well(table: TableStatus) -> bool:
    return table.error is None and table.applied_lsn is not None and not table.pending_changes


def _state_of(table: TableStatus) -> Text:
    if table.snapshot_progress is not None:
        return Text(f"read: {table.snapshot_progress}", style="yellow")
    return _state(table.error, table.applied_lsn, table.pending_changes, "no snapshot yet: sync takes it")


def _state(error: CdcError | None, applied: Lsn | None, behind: int | None, not_begun: str) -> Text:
    if error is not None:
        return Text("stopped", style="bold red")
    if applied is None:
        return Text(not_begun, style="yellow")
    return Text("behind the log", style="yellow") if behind else Text("up to the log", style="green")


def _bytes(count: int | None) -> str:
    return _UNKNOWN if count is None else size(count)
