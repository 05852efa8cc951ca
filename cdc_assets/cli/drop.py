"""``postgres-cdc drop``: removes what a pipeline has made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.output_choice import FEW
from cdc_assets.cli.terminal import Terminal, counted, new_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.drop.drop import drop, plan_drop
from spark_jobs.drop.drop_report import DropPlan, DropReport, Removal
from spark_jobs.errors import ConfigurationError
from spark_jobs.readable_size import size


@click.command("drop")
@config_option
@click.option("--lake", is_flag=True, help="Remove the change log, the cuts and the tables in lake.path too.")
@click.option("--yes", is_flag=True, help="Do not ask; needed with --json, and where nobody can be asked.")
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, lake: bool, yes: bool) -> Outcome:
    """Remove what this pipeline has made; at the end of a pipeline.

    Drops its slot, which would otherwise fill the source's disk, and the publication if this tool made it. Lists
    everything by name first, and asks. The lake stays, and no longer changes; with --lake what is this pipeline's in
    lake.path is removed too, and anything else there is kept. If it is killed at any step, run it again.
    """
    pipeline = load_pipeline(config)
    if not yes:
        _require_somebody_to_ask(terminal)
    plan = plan_drop(pipeline, lake=lake)
    if plan.removals and not (terminal.choice.as_json or (yes and terminal.choice.quiet)):
        terminal.announce(Group(_table("to be removed", plan.removals), *_kept(plan)))
    if plan.removals and not yes and not click.confirm("Remove all this?", err=True):
        return Outcome(plan, Text("nothing was removed"), failed=True)
    with terminal.progress() as progress:
        report = drop(pipeline, lake=lake, progress=progress)
    return Outcome(report, _display(report), report.errors)


def _require_somebody_to_ask(terminal: Terminal) -> None:
    if terminal.choice.as_json:
        raise ConfigurationError("--json does not ask, and drop removes nothing unasked", hint="add --yes")
    if not terminal.can_ask:
        raise ConfigurationError("there is no terminal in which to ask, and nothing was removed", hint="add --yes")


def _display(report: DropReport) -> RenderableType:
    if report.removed:
        return Group(_table("removed", report.removed), *_kept(report))
    lake = "" if report.keeps_lake else f", and nothing of this pipeline in {report.lake}"
    return Group(Text(f"there is nothing to remove: no slot, no publication of ours{lake}"), *_kept(report))


def _table(heading: str, removals: Sequence[Removal]) -> Table:
    shown = new_table(heading, "name", "size", "", right=("size",))
    for removal in removals:
        known = "" if removal.bytes is None else size(removal.bytes)
        note = removal.note or ("WAL that is kept for it" if removal.kind == "slot" and known else "")
        shown.add_row(removal.kind, Text(removal.name), known, Text(note))
    return shown


def _kept(report: DropPlan | DropReport) -> tuple[Text, ...]:
    lines = [f"kept: {each.name}: {each.why}" for each in report.left[:FEW]]
    if len(report.left) > len(lines):
        lines.append(f"kept: {len(report.left) - len(lines):,} others, which --json lists")
    if report.keeps_lake and report.tables:
        lines.append(
            f"kept: {report.lake}/tables with {counted(report.tables, 'table')}, which no longer change;"
            " --lake removes the lake too"
        )
    return tuple(map(Text, lines))
