"""``postgres-cdc forget``: removes the traces of single rows."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from cdc_assets.cli.chosen_tables import one_table_option
from cdc_assets.cli.options import config_option, keys_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.terminal import Terminal, counted
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.forget.forget import ForgetReport, forget
from spark_jobs.forget.forget_rows import RowsForgotten
from spark_jobs.logged_changes.changes import table_named


@click.command("forget")
@config_option
@one_table_option
@keys_option
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, table: str | None, keys: tuple[str, ...]) -> Outcome:
    """Remove every trace of rows that the source no longer has: the right to erasure.

    Brings the lake up to date, then removes the rows from the table, in every mode and from every version, and their
    changes from the change log. What held them is deleted from the storage at once, so no version of the table from
    before can be read any more. If it is killed at any step, run it again. `verify --erased` searches what is left.
    """
    if table is None or not keys:
        raise click.UsageError("give the --table, and the --key of each row")
    pipeline = load_pipeline(config)
    with lazy_session(pipeline.spark) as spark, terminal.progress() as progress:
        report = forget(pipeline, spark, table_named(table), keys, progress=progress)
    return Outcome(report, _display(report))


def _display(report: ForgetReport) -> Text:
    return Text("\n".join(_line(report, table) for table in report.tables))


def _line(report: ForgetReport, table: RowsForgotten) -> str:
    if not table.rows and not report.changes:
        what = "neither table nor change log had such a row; older versions"
    else:
        rows, changes = counted(table.rows, "row"), counted(report.changes, "change")
        what = f"{rows} of the table, {changes} in the change log, and all older versions"
    return (
        f"{table.name}: {what} are gone; {counted(table.files, 'data file')} deleted. Delta version"
        f" {table.delta_version} is the oldest that can be read"
    )
