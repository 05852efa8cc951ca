"""Reports of what was done to each table: one line per source table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from rich.console import RenderableType
from rich.text import Text

from cdc_assets.cli.terminal import known, lines, new_table, only_counted, paragraphs, told_apart
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.errors import CdcError, SnapshotWaitsError, why_read
from spark_jobs.replay.change_mode import ModeChanged
from spark_jobs.snapshot.snapshot_tables import TableSnapshot
from spark_jobs.snapshot.table_waiting import TableWaiting

_WAITS = Text("waits", style="yellow")
_COUNTS = ("inserts", "updates", "deletes", "truncates", "rows written", "Delta version")


def applied_table(
    applied: Sequence[TableApplied], messages: TableApplied | None, *, everything: bool
) -> RenderableType:
    """Changes seen, rows written after reducing them to one per key, and the end of the last window; messages last. Of
    many tables without a change, only the number, unless ``everything`` is asked for."""
    listed, idle = told_apart(applied, lambda table: table.outcome == "nothing to apply", everything=everything)
    counted = only_counted(f"{len(idle):,} tables had nothing to apply") if idle else None
    if counted and not listed and messages is None:
        return counted
    shown = new_table("table", *_COUNTS, "through", "outcome", right=_COUNTS)
    for table in listed:
        outcome = _stopped(table.error) if table.error else _outcome(table)
        shown.add_row(Text(str(table.name)), *_figures(table, asdict(table.changes).values()), outcome)
    if messages is not None:
        shown.add_row("_messages", *_figures(messages, [None] * 4), _outcome(messages))
    return paragraphs(shown, counted)


def _figures(table: TableApplied, changes: Iterable[int | None]) -> Iterator[str]:
    yield from map(known, (*changes, table.rows_written))
    yield known(table.delta_version, "{}")
    yield "–" if table.error else str(table.hi)


def _outcome(table: TableApplied) -> Text:
    return Text(table.outcome, style="bold red" if table.error else "green" if table.outcome == "applied" else "dim")


def _stopped(error: CdcError) -> Text:
    """A table that waits is named with its reason elsewhere."""
    return _WAITS if isinstance(error, SnapshotWaitsError) else Text("stopped", style="bold red")


def tables_waiting(waiting: Sequence[TableWaiting]) -> Text | None:
    """Which tables wait for their snapshot, and for whom. This and the next ones: one line per table, None if no table
    has one."""
    return lines(map(str, waiting), style="yellow")


def columns_followed(applied: Sequence[TableApplied]) -> Text | None:
    """How columns changed to follow the source's."""
    return lines(f"columns of {table.name}: {'; '.join(table.columns)}" for table in applied if table.columns)


def modes_changed(changed: Sequence[ModeChanged]) -> Text | None:
    """How tables changed their mode."""
    return lines(f"mode of {table.name}: {'stopped' if table.error else table.what}" for table in changed)


def partitions_read(applied: Sequence[TableApplied]) -> Text | None:
    """Which partitions were read again without the rest of their table, and how many rows."""
    read = ((table.name, table.partitions) for table in applied if table.partitions is not None)
    return lines(
        f"{name}: {one.reason}: only those rows were read again, {one.rows:,} at {one.lsn}" for name, one in read
    )


def unrepresentable_values(done: Sequence[TableApplied | TableSnapshot]) -> Text | None:
    """How many values of tables that were written do not fit, as it is now."""
    states = {table.name: table.state.unrepresentable for table in done if table.state is not None}
    return lines((f"{name}: {values.words}" for name, values in states.items() if values), style="yellow")


def snapshot_table(snapshots: Sequence[TableSnapshot], *, everything: bool) -> RenderableType:
    """Rows read, their one LSN, why tables were read again without being asked for, and which kept columns that cost.
    Of many first snapshots, only the number, unless ``everything`` is asked for."""
    listed, rest = told_apart(
        snapshots, lambda table: not (table.error or table.reason or table.lost), everything=everything
    )
    rows = sum(table.rows for table in rest)
    counted = only_counted(f"{len(rest):,} snapshots were taken, of {rows:,} rows") if rest else None
    if counted and not listed:
        return counted
    reasons = ("because",) if any(table.reason for table in listed) else ()
    shown = new_table("table", "rows", "snapshot", "outcome", *reasons, right=("rows",))
    for table in listed:
        lost = f", without {', '.join(table.lost)}" if table.lost else ""
        outcome = _stopped(table.error) if table.error else Text(f"snapshot taken{lost}", style="green")
        lsn = "–" if table.error else str(table.lsn)
        why = (Text(why_read(table.name, table.reason)) for _ in reasons)
        shown.add_row(Text(str(table.name)), f"{table.rows:,}", lsn, outcome, *why)
    return paragraphs(shown, counted)
