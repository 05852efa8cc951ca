"""``postgres-cdc verify``: compares source and lake at one exact LSN, while both keep changing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.chosen_tables import chosen_tables, table_option
from cdc_assets.cli.options import config_option, keys_option, output_options, read_by, read_location, read_seconds
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.terminal import Terminal, known, new_table, only_counted, paragraphs, told_apart
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import one_line
from spark_jobs.forget.traces_left import ErasureReport, find_traces
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.storage import Location
from spark_jobs.verify.compare_copy import OtherCopy, compare_copy
from spark_jobs.verify.compare_table import Thoroughness
from spark_jobs.verify.table_verified import DifferingRow, TableVerified, VerifyReport
from spark_jobs.verify.verify import verify

_STYLES = {"equal": "green", "different": "bold red", "not compared": "yellow"}


def _share(value: str) -> float:
    """Of a percentage, ``5%`` or ``5``: 0 to 1."""
    try:
        percent = float(value.strip().removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise ValueError(f"{value!r} is not a share: expected 5%, say, and at most 100%")
    return percent / 100


def _pairs(values: Sequence[str]) -> dict[str, str]:
    """Of an option that is given as ``NAME=OTHER``, any number of times."""
    if wrong := next((text for text in values if "=" not in text), None):
        raise ValueError(f"{wrong!r} is not a pair: expected COLUMN=THEIRS, or COLUMN= to leave it out")
    return dict(text.partition("=")[::2] for text in values)


@click.command("verify")
@config_option
@table_option
@click.option("--quick", is_flag=True, help="Compare hashes, and row by row only what differs.")
@click.option(
    "--sample",
    callback=read_by(_share),
    metavar="PERCENT",
    help="Read only this share of the source's blocks; rows that only the lake has are not looked for.",
)
@click.option(
    "--differences",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    metavar="N",
    help="Name the keys of up to N differing rows of each table.",
)
@click.option(
    "--against",
    callback=read_location,
    metavar="PATH",
    help="Compare one table with the copy that another tool keeps: a Delta table anywhere.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    callback=read_by(_pairs),
    metavar="COLUMN=THEIRS",
    help="With --against: another name of a column in the copy; COLUMN= leaves it out.",
)
@click.option(
    "--tolerance",
    default="60s",
    show_default=True,
    callback=read_seconds,
    metavar="TIME",
    help="With --against: how late the copy may be.",
)
@click.option("--erased", is_flag=True, help="Search all files of the lake for rows of one table, or for texts.")
@keys_option
@click.option("--value", "values", multiple=True, metavar="TEXT", help="With --erased: a text, such as an address.")
@output_options
@click.pass_obj
def command(
    terminal: Terminal,
    config: Path,
    tables: tuple[TablePattern, ...],
    quick: bool,
    sample: float | None,
    differences: int,
    against: str | None,
    columns: dict[str, str],
    tolerance: float,
    erased: bool,
    keys: tuple[str, ...],
    values: tuple[str, ...],
) -> Outcome:
    """Compare tables with the source, row by row, at one LSN.

    Exports a snapshot of the source, brings the lake to exactly its LSN, and compares every row and column; the source
    may be written at the same time. Exit code 0: all tables are equal. Exit code 1: a table differs, or could not be
    compared; one line each says which. Keys of differing rows are printed, values of other columns never are.

    --against compares the source with a table that another tool keeps. It needs nothing of ours but the configuration:
    no slot, no lake. Rows that differ are looked at again after --tolerance; they count if the source has not changed
    them in between.

    --erased shows that nothing is left of rows that `forget` has removed, given by --table and --key, or of a --value:
    it reads every file in lake.path, also those that belong to older versions or to nothing. Exit code 1: a file has
    traces; its path and column are printed, the value is not.
    """
    how = Thoroughness(quick, sample, differences)
    pipeline = load_pipeline(config)
    chosen = chosen_tables(pipeline, tables)
    if erased:
        return _erased(terminal, pipeline, chosen, keys, values)
    if keys or values:
        raise click.UsageError("--key and --value go with --erased")
    if against is None and columns:
        raise click.UsageError("--column goes with --against")
    if against is not None and (quick or sample or chosen is None or len(chosen) != 1):
        raise click.UsageError("--against goes with one --table, and neither with --quick nor --sample")
    with lazy_session(pipeline.spark) as spark, terminal.progress() as progress:
        if against is not None and chosen is not None:
            copy = OtherCopy(Location(against, pipeline.lake.storage), columns, tolerance)
            report = compare_copy(pipeline, spark, chosen[0], copy, most=differences, progress=progress)
        else:
            report = verify(pipeline, spark, chosen, how=how, progress=progress)
    return Outcome(report, display(report, terminal.choice.verbose), report.problems)


def _erased(
    terminal: Terminal,
    pipeline: Pipeline,
    chosen: Sequence[QualifiedName] | None,
    keys: Sequence[str],
    values: Sequence[str],
) -> Outcome:
    names = chosen or ()
    if not (keys or values) or bool(keys) != bool(names) or len(names) > 1:
        raise click.UsageError("--erased goes with one --table and its --key, or with --value, or with both")
    with terminal.progress() as progress:
        report = find_traces(pipeline, names[0] if names else None, keys, values, progress=progress)
    return Outcome(report, _traces(report), report.errors)


def _traces(report: ErasureReport) -> RenderableType:
    if not report.traces:
        return Text(f"no trace in {report.files:,} files, searched in {report.seconds:.1f} s")
    shown = new_table("file", "where")
    for trace in report.traces:
        shown.add_row(Text(one_line(trace.file)), Text(one_line(trace.where)))
    return shown


def display(report: VerifyReport, everything: bool = False) -> RenderableType:
    listed, equal = told_apart(report.tables, lambda table: table.verdict == "equal", everything=everything)
    rows = sum(table.counts.source_rows for table in equal)
    return paragraphs(
        _counts(listed) if listed or not equal else None,
        only_counted(f"{len(equal):,} tables of {rows:,} rows are equal") if equal else None,
        *(_rows(table) for table in report.tables if table.rows),
        Text(f"compared in {report.seconds:.1f} s"),
    )


def _counts(tables: Sequence[TableVerified]) -> Table:
    figures: tuple[str, ...] = ("source rows", "lake rows", "missing", "extra", "changed")
    figures += ("in flight",) if any(table.copy for table in tables) else ()
    shown = new_table("table", *figures, "at", "Delta version", "verdict", right=figures)
    for table in tables:
        counts = table.counts
        numbers = (counts.source_rows, counts.lake_rows, counts.missing, counts.extra, counts.changed, counts.in_flight)
        shown.add_row(
            Text(one_line(str(table.name))),
            *("–" if table.error else f"{number:,}" for number in numbers[: len(figures)]),
            str(table.lsn),
            known(table.delta_version, "{}"),
            Text(table.verdict, style=_STYLES[table.verdict]),
        )
    return shown


def _rows(table: TableVerified) -> Table:
    shown = new_table("difference", "key", "columns that differ", title=Text(one_line(str(table.name))))
    for row in table.rows:
        shown.add_row(row.difference, Text(_key(row)), Text(one_line(", ".join(row.columns))))
    return shown


def _key(row: DifferingRow) -> str:
    # a key may hold anything, even escape sequences
    return one_line(", ".join(f"{part.column}={part.value}" for part in row.key))
