"""``postgres-cdc changes``: every change of a table in a range, as JSON lines or as an Arrow stream."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.cli.chosen_tables import one_table_option
from cdc_assets.cli.json_output import json_line
from cdc_assets.cli.options import config_option, output_options_of_changes, read_point
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.terminal import Terminal
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.logged_changes.changes import ChangesRead, bounds, logged_table, read_changes
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.points import Point
from spark_jobs.schema.mode_columns import COMMIT_LSN

_KINDS = ("insert", "update", "delete", "truncate")


@dataclass(frozen=True)
class ChangesCounted:
    """How many changes of table ``name`` were committed from the LSN ``lo`` on and before ``hi``."""

    name: QualifiedName
    lo: Lsn
    hi: Lsn
    changes: ChangeCounts


@click.command("changes")
@config_option
@one_table_option
@click.option("--from", "from_", metavar="LSN|TIME", callback=read_point, help="Default: all that the log still has.")
@click.option("--to", metavar="LSN|TIME", callback=read_point, help="Where the range ends, exclusive. Default: now.")
@click.option("--partition", metavar="START-END", help="In place of both: a partition's key in Dagster.")
@output_options_of_changes
@click.pass_obj
def command(
    terminal: Terminal, config: Path, table: str | None, from_: Point | None, to: Point | None, partition: str | None
) -> Outcome:
    """Print every change of one table, in the order of the source's commits.

    One row for each insert, update, delete and truncate, with the row before and after it as far as the source has sent
    them. What is read is the change log: neither the source nor Java is needed, and nothing is changed. TIME has a time
    zone, as in 2026-11-22T13:00:00Z, and refers to the source's commits.

    jsonl: one JSON object a line. arrow: a stream in Arrow's IPC format, for a file or a pipe. json: counts alone.
    """
    if table is None:
        raise click.UsageError("give the --table whose changes you want")
    if terminal.choice.form == "arrow" and terminal.stdout.isatty():
        raise click.UsageError("--output arrow is not for a terminal: send it to a file or a pipe")
    if partition is not None:
        if from_ is not None or to is not None:
            raise click.UsageError("give --partition, or --from and --to")
        from_, to = bounds(partition)
    read = read_changes(logged_table(load_pipeline(config), table), from_, to)
    if terminal.choice.as_json:
        return Outcome(ChangesCounted(read.name, read.lo, read.hi, _counts(read.batches)), "")
    try:
        _print(terminal, read)
    except BrokenPipeError:  # the reader (head, say) has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), terminal.stdout.fileno())
    return Outcome(None, "")


def _print(terminal: Terminal, read: ChangesRead) -> None:
    if terminal.choice.form == "arrow":
        with pa.ipc.new_stream(terminal.stdout.buffer, read.batches.schema) as stream:
            for batch in read.batches:
                stream.write_batch(batch)
    else:
        for batch in read.batches:
            terminal.stdout.writelines(_lines(batch))
    terminal.stdout.flush()


def _lines(batch: pa.RecordBatch) -> Iterator[str]:
    """One line of JSON for each change, without loss."""
    for row in batch.to_pylist():
        lsn = str(Lsn(row[COMMIT_LSN.name]))
        yield json_line({**{name: _plain(value) for name, value in row.items()}, COMMIT_LSN.name: lsn}) + "\n"


def _plain(value: object) -> object:
    """A value of a row in JSON. Numbers that its readers may round (decimals), or that it does not have (NaN,
    infinities), are strings with all their digits; bytea is as PostgreSQL prints it, times are in ISO 8601."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, date):  # times too
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _counts(batches: pa.RecordBatchReader) -> ChangeCounts:
    counts = dict.fromkeys(_KINDS, 0)
    for batch in batches:
        for entry in pc.value_counts(batch.column("_operation")).to_pylist():
            counts[entry["values"]] += entry["counts"]
    return ChangeCounts(*counts.values())
