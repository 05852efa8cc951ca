"""The options that commands share, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from cdc_assets.cli.terminal import FEW
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., object])

CONFIG_VARIABLE = "POSTGRES_CDC_CONFIG"


def output_options(function: CommandFunction) -> CommandFunction:
    """``--json`` and ``--debug``: ``invocation`` reads them; they are declared here for ``--help`` and the parser."""
    debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the trace of a failure.")
    as_json = click.option("--json", is_flag=True, expose_value=False, help="Print one JSON document and nothing else.")
    return as_json(debug(function))


def all_option(function: CommandFunction) -> CommandFunction:
    """``--all``: also list what is well, however much it is."""
    help_text = f"List also what is well, if it is more than {FEW} lines; else it is counted."
    return click.option("--all", "everything", is_flag=True, help=help_text)(function)


def config_option(function: CommandFunction) -> CommandFunction:
    """``--config FILE``, which every command but the demo needs."""
    option = click.option(
        "--config",
        "-c",
        required=True,
        envvar=CONFIG_VARIABLE,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"The pipeline's YAML file; else the one that ${CONFIG_VARIABLE} names.",
    )
    return option(function)


def read_lsn(ctx: click.Context, param: click.Parameter, value: str | None) -> Lsn | None:
    """Callback of an option whose value is an LSN as PostgreSQL prints it."""
    if value is None:
        return None
    try:
        return Lsn.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def read_table_names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[QualifiedName, ...]:
    """Callback of an argument whose values are tables' names as SQL writes them."""
    try:
        return tuple(map(QualifiedName.parse, value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
