"""``postgres-cdc cut``: which Delta version of each table shows the source at one LSN. Reads only the lake."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from cdc_assets.cli.options import config_option, output_options, read_point
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.terminal import new_table, paragraphs
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.replay.consistent_cut import ConsistentCut, consistent_cut


@click.command("cut")
@config_option
@click.option("--at", metavar="LSN|TIME", callback=read_point, help="The newest cut at or before; else the latest.")
@output_options
def command(config: Path, at: Lsn | datetime | None) -> Outcome:
    """Show which Delta version of each table to read to see all of them at one LSN.

    TIME has a time zone, as in 2026-11-22T13:00:00Z, and refers to the source's commits. Needs neither Java nor the
    source; changes nothing.
    """
    cut = consistent_cut(load_pipeline(config), at)
    return Outcome(cut, _display(cut))


def _display(cut: ConsistentCut) -> RenderableType:
    committed = f"last commit {cut.commit_time.isoformat(sep=' ')}" if cut.commit_time else "no commit yet"
    shown = new_table("table", "Delta version", "path", right=("Delta version",))
    for table in cut.tables:
        shown.add_row(Text(str(table.name)), str(table.delta_version), Text(table.path))
    return paragraphs(Text(f"LSN {cut.lsn}, {committed}, window {cut.window}"), shown)
