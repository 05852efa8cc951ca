"""``postgres-cdc capture``: lands the slot in the change log. Never loads Spark, so it is cheap to run often."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from cdc_assets.cli.options import config_option, output_options, read_lsn
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.terminal import Terminal, counted
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.capture.capture import CaptureReport, capture
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.prepare import prepare
from spark_jobs.readable_size import size


@click.command("capture")
@config_option
@click.option(
    "--to", "upto", metavar="LSN", callback=read_lsn, help="Stop here; default: the WAL flushed at the start."
)
@click.option("--max-windows", type=click.IntRange(min=1), help="Read at most this many; default: windows.max_per_run.")
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, upto: Lsn | None, max_windows: int | None) -> Outcome:
    """Land the slot's windows in the change log, then advance the slot.

    Needs no Java. Creates publication and slot if they are missing. Run it often: what is landed no longer holds WAL
    on the source, and `apply` or `sync` brings it into the tables later. Exit code 1: everything is landed, but a table
    cannot be followed.
    """
    pipeline = load_pipeline(config)
    prepared = prepare(pipeline)
    with terminal.progress() as progress:
        report = capture(pipeline, upto=upto, max_windows=max_windows, progress=progress)
    return Outcome(report, _display(report), tuple(table.error for table in prepared.stopped))


def _display(report: CaptureReport) -> Text:
    changes = sum(marker.changes for marker in report.landed)
    read = sum(marker.bytes for marker in report.landed)
    rest = (
        "" if report.caught_up else f"; {size(max(0, report.upto - report.landed_end))} of WAL are left: run it again"
    )
    done = f"{counted(len(report.landed), 'window')} with {counted(changes, 'change')} ({size(read)}) landed"
    lines = [f"{done}, up to {report.landed_end}{rest}"]
    looks = (marker.catalogue.changed for marker in report.landed if marker.catalogue)
    changed = (table for look in looks for table in look if table.reasons)
    lines += [f"{table.name} changed without a row event: {'; '.join(table.reasons)}" for table in changed]
    return Text("\n".join(lines))
