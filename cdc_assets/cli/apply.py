"""``postgres-cdc apply``: applies landed windows to the Delta tables. Does not touch the source's slot."""

from __future__ import annotations

from pathlib import Path

import click

from cdc_assets.cli.chosen_tables import chosen_tables, table_option_or_arguments
from cdc_assets.cli.options import config_option, output_options, read_lsn
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.table_reports import applied_table
from cdc_assets.cli.terminal import Terminal
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.apply.apply import apply
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.run import Run


@click.command("apply")
@config_option
@table_option_or_arguments
@click.option("--to", "upto", metavar="LSN", callback=read_lsn, help="Up to the last window that ends here or before.")
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, tables: tuple[TablePattern, ...], upto: Lsn | None) -> Outcome:
    """Bring tables (default: all) up to the change log, each from its own watermark.

    Spark starts only when there is something to write. A table that must stop stops only itself; the exit code is then
    1.
    """
    pipeline = load_pipeline(config)
    chosen = chosen_tables(pipeline, tables)
    with lazy_session(pipeline.spark, may_be_brief=True) as spark, terminal.progress() as progress:
        report = apply(Run(pipeline, spark, progress=progress), chosen, upto=upto, uncaptured=0)
    shown = applied_table(report.tables, report.messages, everything=terminal.choice.verbose)
    return Outcome(report, shown, tuple(report.errors))
