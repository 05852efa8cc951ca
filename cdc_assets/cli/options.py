"""The options that commands share, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from cdc_assets.cli.output_choice import Form, options_of
from cdc_assets.cli.terminal import Terminal
from cdc_assets.configuration.units import read_duration
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.replay.points import point

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., object])
Value = TypeVar("Value")

CONFIG_VARIABLE = "POSTGRES_CDC_CONFIG"
DEFAULT_CONFIG = "postgres-cdc.yaml"


def _declared(*forms: Form) -> Callable[[CommandFunction], CommandFunction]:
    """``OutputChoice.of`` reads these options; they are declared for ``--help`` and the parser of the command."""

    def declare(function: CommandFunction) -> CommandFunction:
        declared: list[click.Parameter] = function.__dict__.setdefault("__click_params__", [])
        declared.extend(reversed(options_of(*forms)))  # as decorators do, from the last to the first
        return function

    return declare


output_options = _declared("table", "json")
output_options_with_metrics = _declared("table", "json", "prometheus")
output_options_of_changes = _declared("jsonl", "arrow", "json")


def _named(context: click.Context, parameter: click.Parameter, value: Path) -> Path:
    """Hints that are pasted name the file as this call does."""
    terminal = context.find_object(Terminal)
    if terminal is not None and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        terminal.configuration = value
    return value


# every command but the demo needs it
config_option = click.option(
    "--config",
    "-c",
    default=DEFAULT_CONFIG,
    envvar=CONFIG_VARIABLE,
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_named,
    help=f"The pipeline's YAML file. Default: ${CONFIG_VARIABLE}, then {DEFAULT_CONFIG}.",
)
# as a tuple of texts in the parameter ``keys``; what they mean depends on the table
keys_option = click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN=VALUE[,…]",
    help="The key of a row, all its columns, as a line of CSV; may be repeated.",
)


def read_by(parse: Callable[[Any], Value]) -> Callable[[click.Context, click.Parameter, Any], Value | None]:
    """The callback of an option whose value ``parse`` reads; its ValueError says what is wrong."""

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Value | None:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return read


def _seconds(value: str) -> float:
    text = value.strip()
    try:
        # min is the old spelling of m
        return read_duration(text.removesuffix("in") if text.endswith("min") else text).total_seconds()
    except ValueError as error:
        raise ValueError(f"{value!r} is not a time: {error}, as in 5s") from None


read_lsn, read_point, read_seconds = read_by(Lsn.parse), read_by(point), read_by(_seconds)


def read_location(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Callback of an option whose value is a URI, or a path of this machine, which becomes absolute."""
    return value if value is None or "://" in value or value.startswith("file:") else str(Path(value).absolute())
