"""``postgres-cdc init``: writes a configuration from what a database holds."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import click
from rich.text import Text

from cdc_assets.cli.chosen_tables import table_option
from cdc_assets.cli.options import DEFAULT_CONFIG, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.terminal import counted
from cdc_assets.configuration.found_database import FoundDatabase, dsn_of, look_at
from cdc_assets.configuration.load_pipeline import COMPONENT_TYPE
from cdc_assets.configuration.new_configuration import configuration_text
from spark_jobs.errors import ConfigurationError
from spark_jobs.options.table_pattern import TablePattern


@dataclass(frozen=True)
class InitReport:
    """The file that was written, and what it is made of."""

    file: Path
    found: FoundDatabase


@click.command("init")
@click.option(
    "--dsn-env",
    default="POSTGRES_DSN",
    metavar="NAME",
    show_default=True,
    help="The environment variable with the connection string; the file refers to it.",
)
@click.option("--dsn", help="Connect with this instead. Others on this machine can see it in the list of processes.")
@table_option
@click.option(
    "--output-file",
    "file",
    default=DEFAULT_CONFIG,
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default=True,
    help="The file to write. One that exists is never overwritten.",
)
@output_options
def command(dsn_env: str, dsn: str | None, tables: tuple[TablePattern, ...], file: Path) -> Outcome:
    """Write a configuration from what a database holds; nothing is changed there.

    Lists the tables with their size and what identifies their rows. Those that cannot be replicated yet are commented
    out, with the reason and the remedy. Edit the file, then run `postgres-cdc doctor`.
    """
    _require_writable(file)
    source = look_at(dsn_of(dsn_env, dsn), patterns=tables)
    doctor = f"postgres-cdc doctor --config {shlex.quote(str(file))}"
    text = configuration_text(
        head=[
            f"The tables of database {source.database}, by postgres-cdc init. Edit this, then run: {doctor}",
            "Dagster reads this file too, as defs/NAME/defs.yaml in a project.",
        ],
        type_name=COMPONENT_TYPE,
        name=source.name,
        variable=dsn_env,
        lake="lake",
        database=source,
    )
    try:
        with file.open("x", encoding="utf-8") as output:
            output.write(text)
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be written: {error.strerror}") from None
    return Outcome(InitReport(file, source), _display(file, source, doctor, None if dsn is None else dsn_env))


def _require_writable(file: Path) -> None:
    """What can be known before the database is asked."""
    if file.exists():
        raise ConfigurationError(f"{file}: exists already", hint="name another one with --output-file")
    if not file.parent.is_dir():
        raise ConfigurationError(f"{file}: cannot be written: there is no folder {file.parent}")


def _display(file: Path, source: FoundDatabase, doctor: str, unset: str | None) -> Text:
    left = len(source.tables) - len(source.usable)
    lines = [
        f"{file}: pipeline {source.name} with {counted(len(source.usable), 'table')} of database {source.database}"
    ]
    if left:
        lines.append(f"{counted(left, 'table')} commented out, each with what must be done to replicate it")
    if source.problems:
        lines.append(f"{counted(len(source.problems), 'finding')} about the source, under source:")
    lines.append("Edit it, then run:")
    if unset:
        lines.append(f"  export {unset}=...  # the connection string, which is not in the file")
    return Text("\n".join([*lines, f"  {doctor}"]))
