"""Options whose value is a point in the source's history: an LSN, or a time with its zone."""

from __future__ import annotations

import click

from spark_jobs.replay.points import Point, point


def read_point(ctx: click.Context, param: click.Parameter, value: str | None) -> Point | None:
    """Callback of an option whose value is an LSN or a time."""
    if value is None:
        return None
    try:
        return point(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
