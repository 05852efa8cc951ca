"""Reports of what was done to each table: one line per source table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from cdc_assets.cli.terminal import new_table, only_counted, told_apart
from spark_jobs.apply.table_applied import TableApplied
from spark_jobs.errors import CdcError, SnapshotWaitsError
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
    counted = only_counted(f"{len(idle):,} tables had nothing to apply")
    if idle and not listed and messages is None:
        return counted
    shown = new_table("table", *_COUNTS, "through", "outcome", right=_COUNTS)
    for table in listed:
        counts = (*asdict(table.changes).values(), table.rows_written)
        style = "green" if table.outcome == "applied" else "dim"
        shown.add_row(
            Text(str(table.name)),
            *(f"{count:,}" for count in counts),
            "–" if table.delta_version is None else str(table.delta_version),
            "–" if table.error else str(table.hi),
            _stopped(table.error) if table.error else Text(table.outcome, style=style),
        )
    if messages is not None:
        style = "bold red" if messages.error else "green" if messages.outcome == "applied" else "dim"
        shown.add_row(
            "_messages",
            *("–" for _ in range(4)),
            f"{messages.rows_written:,}",
            "–" if messages.delta_version is None else str(messages.delta_version),
            "–" if messages.error else str(messages.hi),
            Text(messages.outcome, style=style),
        )
    return Group(shown, Text(), counted) if idle else shown


def _stopped(error: CdcError) -> Text:
    """A table that waits is named with its reason elsewhere."""
    return _WAITS if isinstance(error, SnapshotWaitsError) else Text("stopped", style="bold red")


def tables_waiting(waiting: Sequence[TableWaiting]) -> Text:
    """Which tables wait for their snapshot, and for whom: one line per table."""
    return Text("\n".join(map(str, waiting)), style="yellow")


def columns_followed(applied: Sequence[TableApplied]) -> Text:
    """How columns changed to follow the source's: one line per table."""
    changed = (f"columns of {table.name}: {'; '.join(table.columns)}" for table in applied if table.columns)
    return Text("\n".join(changed))


def modes_changed(changed: Sequence[ModeChanged]) -> Text:
    """How tables changed their mode: one line per table."""
    lines = (f"mode of {table.name}: {'stopped' if table.error else table.what}" for table in changed)
    return Text("\n".join(lines))


def partitions_read(applied: Sequence[TableApplied]) -> Text:
    """Which partitions were read again without the rest of their table, and how many rows: one line per table."""
    read = ((table.name, table.partitions) for table in applied if table.partitions is not None)
    lines = (f"{name}: {one.reason}: only those rows were read again, {one.rows:,} at {one.lsn}" for name, one in read)
    return Text("\n".join(lines))


def unrepresentable_values(done: Sequence[TableApplied | TableSnapshot]) -> Text | None:
    """How many values of tables that were written do not fit: one line per table, as it is now. None if all fit."""
    states = {table.name: table.state for table in done if table.state is not None}
    lines = [f"{name}: {state.unrepresentable.words}" for name, state in states.items() if state.unrepresentable]
    return Text("\n".join(lines), style="yellow") if lines else None


def snapshot_table(snapshots: Sequence[TableSnapshot], *, everything: bool) -> RenderableType:
    """Rows read, their one LSN, why tables were read again without being asked for, and which kept columns that cost.
    Of many first snapshots, only the number, unless ``everything`` is asked for."""
    listed, taken = told_apart(
        snapshots, lambda table: not (table.error or table.reason or table.lost), everything=everything
    )
    counted = only_counted(f"{len(taken):,} snapshots were taken, of {sum(table.rows for table in taken):,} rows")
    if taken and not listed:
        return counted
    reasons = ("because",) if any(table.reason for table in listed) else ()
    shown = new_table("table", "rows", "snapshot", "outcome", *reasons, right=("rows",))
    for table in listed:
        lost = f", without {', '.join(table.lost)}" if table.lost else ""
        outcome = _stopped(table.error) if table.error else Text(f"snapshot taken{lost}", style="green")
        lsn = "–" if table.error else str(table.lsn)
        shown.add_row(Text(str(table.name)), f"{table.rows:,}", lsn, outcome, *(Text(table.reason) for _ in reasons))
    return Group(shown, Text(), counted) if taken else shown
