"""``--table NAME``: the tables that a command is asked for, by name or by pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

import click

from cdc_assets.cli.old_spellings import OLD_SPELLING_ENDS
from cdc_assets.cli.options import read_by
from cdc_assets.cli.terminal import Terminal
from spark_jobs.configuration import Pipeline
from spark_jobs.options.table_pattern import TablePattern, selected_names
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.tables.at_source import all_followed_names

_patterns = read_by(lambda names: tuple(map(TablePattern.parse, names)))


# as a tuple of patterns in the parameter ``tables``; empty: all
table_option = click.option(
    "--table",
    "-t",
    "tables",
    metavar="NAME",
    multiple=True,
    callback=_patterns,
    help="Only this table, or those that match a pattern such as 'public.*'; may be repeated.",
)


def _one_of(names: Sequence[str]) -> str | None:
    if len(names) > 1:
        raise ValueError(f"one table at a time, not {len(names)}")
    return names[0] if names else None


# as a name in the parameter ``table``; None without one. Others take several: a second one must not be ignored
one_table_option = click.option(
    "--table", "-t", "table", metavar="NAME", multiple=True, callback=read_by(_one_of), help="The table."
)


def table_option_or_arguments(function: Callable[..., object]) -> Callable[..., object]:
    """``table_option``, or its old spelling: tables without ``--table``."""

    @wraps(function)
    def command(*, tables: tuple[TablePattern, ...], arguments: tuple[TablePattern, ...], **options: object) -> object:
        return function(tables=(*tables, *arguments), **options)

    return table_option(click.argument("arguments", nargs=-1, metavar="", callback=_read_arguments)(command))


def _read_arguments(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> object:
    if value:
        ctx.ensure_object(Terminal).deprecated(f"write --table before each table's name; {OLD_SPELLING_ENDS}")
    return _patterns(ctx, param, value)


def chosen_tables(pipeline: Pipeline, patterns: Sequence[TablePattern]) -> tuple[QualifiedName, ...] | None:
    """The tables that are meant; None if nothing was chosen: all. Names are taken as they are; the source is asked
    only where a pattern needs it. Raises ConfigurationError for a pattern that no table of the pipeline matches."""
    if not patterns:
        return None
    are_names = all(pattern.name is not None for pattern in patterns)
    return selected_names(patterns, () if are_names else all_followed_names(pipeline))
