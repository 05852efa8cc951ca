"""``postgres-cdc register``: gives tables their names in Spark's catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.chosen_tables import chosen_tables, table_option
from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.terminal import new_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.apply.register import TableRegistered, register
from spark_jobs.errors import CdcError, ConfigurationError, LakeError, new_snapshot
from spark_jobs.options.table_pattern import TablePattern
from spark_jobs.run import Run
from spark_jobs.tables.at_source import all_followed_names
from spark_jobs.tables.ledger import Ledger


@dataclass(frozen=True)
class RegisterReport:
    """The tables of one call, each with its name in the catalogue."""

    tables: tuple[TableRegistered, ...]


@click.command("register")
@config_option
@table_option
@output_options
def command(config: Path, tables: tuple[TablePattern, ...]) -> Outcome:
    """Give tables their names of `lake.catalog` in the catalogue of Spark, such as a Hive metastore.

    A run that has a Spark session does it by itself for new tables. It may be repeated.
    """
    pipeline = load_pipeline(config)
    if not pipeline.lake.catalog:
        what = f"{config}: lake.catalog is not set, so tables have no names"
        raise ConfigurationError(what, hint='below lake: catalog: "shop_{schema}.{table}"')
    names = chosen_tables(pipeline, tables) or all_followed_names(pipeline)
    ledger = Ledger.required(pipeline.lake).reading(names)
    errors: list[CdcError] = [*ledger.errors.values()]
    errors += [
        LakeError(f"{name} has no snapshot yet", hint=new_snapshot(name)) for name in ledger.without_snapshot(names)
    ]
    with lazy_session(pipeline.spark) as spark:
        done = register(Run(pipeline, spark), [*ledger.states]) if ledger.states else ()
    errors += [table.error for table in done if table.error is not None]
    return Outcome(RegisterReport(done), _display(done), tuple(errors))


def _display(done: tuple[TableRegistered, ...]) -> Table:
    shown = new_table("table", "name in the catalogue", "outcome")
    for table in done:
        style = "bold red" if table.error else "green" if table.outcome == "registered" else "dim"
        shown.add_row(Text(str(table.name)), Text(table.registered_as), Text(table.outcome, style=style))
    return shown
