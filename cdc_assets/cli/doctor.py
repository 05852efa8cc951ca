"""``postgres-cdc doctor``: checks every precondition on both sides, and says how to meet it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.terminal import new_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.doctor import Diagnosis, Verdict, diagnose
from spark_jobs.errors import PreconditionError

_STYLE = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


@click.command("doctor")
@config_option
@output_options
def command(config: Path) -> Outcome:
    """Check every precondition, change nothing.

    Checks the source (settings, privileges, publication, tables, slot), the lake and Spark, and says for each fault
    how to correct it. Exit code 1 if something would stop sync.
    """
    diagnosis = diagnose(load_pipeline(config))
    count = len(diagnosis.failures)
    failed = f"{count} of {len(diagnosis.checks)} checks failed"
    problems = (PreconditionError(failed, hint="correct what is marked fail"),) if count else ()
    return Outcome(diagnosis, _display(diagnosis), problems)


def _display(diagnosis: Diagnosis) -> Table:
    table = new_table("", "area", "check", "found", "how to mend it")
    for check in diagnosis.checks:
        mark = Text(check.verdict.value, style=_STYLE[check.verdict])
        table.add_row(mark, check.area, Text(check.what), Text(check.found), Text(check.remedy))
    return table
