"""``postgres-cdc doctor``: checks every precondition on both sides, and says how to meet it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.output_choice import FEW
from cdc_assets.cli.pasted_hint import pasted_hint
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.terminal import Terminal, new_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.doctor import Diagnosis, Verdict, diagnose
from spark_jobs.errors import PreconditionError

_STYLE = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


@click.command("doctor")
@config_option
@click.option("--spark", "by_spark", is_flag=True, help="Start Spark, too, and let it write a small table to the lake.")
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, by_spark: bool) -> Outcome:
    """Check every precondition, change nothing.

    Checks the source (settings, privileges, publication, tables, slot), the lake and Spark, and says for each fault
    how to correct it. Exit code 1 if something would stop sync.
    """
    pipeline = load_pipeline(config)
    with lazy_session(pipeline.spark) as spark:
        diagnosis = diagnose(pipeline, spark if by_spark else None)
    return Outcome(
        diagnosis,
        _display(diagnosis, terminal.configuration, terminal.choice.verbose),
        tuple(_problems(diagnosis, terminal.choice.quiet)),
    )


def _problems(diagnosis: Diagnosis, each: bool) -> Iterator[PreconditionError]:
    """Their number, above the table; or ``each``, where no table is shown."""
    count = len(diagnosis.failures)
    if each:
        yield from (PreconditionError(f"{one.what}: {one.found}", hint=one.remedy) for one in diagnosis.failures)
    elif count:
        failed = f"{count} of {len(diagnosis.checks)} checks failed"
        yield PreconditionError(failed, hint="correct what is marked fail")


def _display(diagnosis: Diagnosis, configuration: Path | None = None, everything: bool = False) -> Table:
    table = new_table("", "area", "check", "found", "how to fix it")
    well = Counter(check.area for check in diagnosis.checks if check.verdict is Verdict.OK)
    counted = [] if everything else [area for area, number in well.items() if number > FEW]
    for area in counted:
        table.add_row(Text("ok", style="green"), area, f"{well[area]:,} checks", "all well: --verbose lists them")
    for check in diagnosis.checks:
        if check.verdict is Verdict.OK and check.area in counted:
            continue
        mark = Text(check.verdict.value, style=_STYLE[check.verdict])
        remedy = pasted_hint(check.remedy, configuration)
        table.add_row(mark, check.area, Text(check.what), Text(check.found), Text(remedy))
    return table
