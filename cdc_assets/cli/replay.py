"""``postgres-cdc replay``: applies a range of LSNs again, rebuilds a table, or builds a table as of one LSN."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from cdc_assets.cli.chosen_tables import chosen_tables, table_option
from cdc_assets.cli.options import config_option, output_options, read_location, read_lsn, read_point
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.terminal import Terminal, counted, known, new_table, paragraphs
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.replay.as_of import TableAsOf, table_as_of
from spark_jobs.replay.rebuild import rebuild
from spark_jobs.replay.replay import ReplayReport, replay
from spark_jobs.run import Run

_COUNTS = ("inserts", "updates", "deletes", "truncates", "rows written", "Delta version")
_GOOD = ("applied", "rebuilt")


@click.command("replay")
@config_option
@click.option("--from", "lo", metavar="LSN", callback=read_lsn, help="Where the range begins.")
@click.option("--to", "hi", metavar="LSN", callback=read_lsn, help="Where it ends, exclusive.")
@table_option
@click.option("--rebuild", "rebuilds", is_flag=True, help="Make the tables again from before the range.")
@click.option("--at", metavar="LSN|TIME", callback=read_point, help="Build one table as it was before, beside it.")
@click.option(
    "--into", callback=read_location, metavar="PATH", help="Where --at builds: a path or URI that holds nothing yet."
)
@output_options
@click.pass_obj
def command(
    terminal: Terminal,
    config: Path,
    lo: Lsn | None,
    hi: Lsn | None,
    tables: tuple[TablePattern, ...],
    rebuilds: bool,
    at: Lsn | datetime | None,
    into: str | None,
) -> Outcome:
    """Apply a range of the change log again, without the source.

    The windows between --from and --to that a table lacks are applied in order; those that it has are recognised. With
    --rebuild a table is built again, from before the range to where it is, in one commit. Windows are taken whole; the
    range that they cover is printed.

    With --at a table is built at PATH as it was before the LSN, or at the time, from its earlier versions and the
    change log; the pipeline's own table is not changed. TIME has a time zone, as in 2026-11-22T13:00:00Z.
    """
    if at is not None or into is not None:
        name = tables[0].name if len(tables) == 1 else None
        if at is None or into is None or name is None or rebuilds or lo is not None or hi is not None:
            raise click.UsageError("--at goes with --into and the name of one --table, and nothing else")
        return _as_of(terminal, config, name, at, into)
    if lo is None or hi is None:
        raise click.UsageError("give --from and --to, or --at and --into")
    pipeline = load_pipeline(config)
    chosen = chosen_tables(pipeline, tables)
    with lazy_session(pipeline.spark) as spark, terminal.progress() as progress:
        report = (rebuild if rebuilds else replay)(Run(pipeline, spark, progress=progress), lo, hi, chosen)
    return Outcome(report, _display(report), tuple(report.errors))


def _as_of(terminal: Terminal, config: Path, name: QualifiedName, at: Lsn | datetime, into: str) -> Outcome:
    pipeline = load_pipeline(config)
    with lazy_session(pipeline.spark) as spark, terminal.progress():
        built = table_as_of(Run(pipeline, spark), name, at, into)
    return Outcome(built, _display_as_of(built))


def _display(report: ReplayReport) -> RenderableType:
    windows = counted(report.last - report.first + 1, "window")
    shown = new_table("table", "had", "applied", *_COUNTS, "outcome", right=("had", "applied", *_COUNTS))
    for table in report.tables:
        style = "bold red" if table.error else "green" if table.outcome in _GOOD else "dim"
        shown.add_row(
            Text(str(table.name)),
            f"{table.already_applied:,}",
            f"{table.applied:,}",
            *(f"{count:,}" for count in (*asdict(table.changes).values(), table.rows_written)),
            known(table.delta_version, "{}"),
            Text(table.outcome, style=style),
        )
    heading = f"{windows}, {report.first} to {report.last}: [{report.lo}, {report.hi})"
    return paragraphs(Text(heading), shown)


def _display_as_of(built: TableAsOf) -> RenderableType:
    return Text(
        f"{built.name} as of {built.lsn}: {counted(built.rows, 'row')} in {built.path}, from its Delta version "
        f"{built.base_version}, as of {built.base_lsn}, and {counted(built.windows, 'window')} of the change log"
    )
