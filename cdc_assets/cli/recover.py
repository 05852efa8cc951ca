"""``postgres-cdc recover``: recovers from a slot that was lost, or no longer continues the change log."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from cdc_assets.cli.dry_run import dry_run_option, dry_run_outcome
from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.table_reports import modes_changed, snapshot_table, tables_waiting
from cdc_assets.cli.terminal import Terminal, paragraphs
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.dry_run import DryRun, plan_recover
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.recover import RecoverReport, recover

_NOTHING = Text("there is nothing to recover: the slot continues the change log, and every table has its snapshot")


@click.command("recover")
@config_option
@dry_run_option
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, dry_run: bool) -> Outcome:
    """Recover a pipeline whose slot was lost, or no longer continues the change log.

    Creates a new slot if there is none that can be read, begins a new chapter of the same change log, and takes a new
    snapshot of each table; the old ones are readable until then. A healthy slot is never dropped: then there is nothing
    to recover. If it is killed at any step, run it again.
    """
    pipeline = load_pipeline(config)
    if dry_run:
        plan = plan_recover(pipeline)
        everything = terminal.choice.verbose
        return dry_run_outcome(plan, everything=everything) if _is_needed(plan) else Outcome(plan, _NOTHING)
    with lazy_session(pipeline.spark) as spark, terminal.progress() as progress:
        report = recover(pipeline, spark, progress=progress)
    return Outcome(report, _display(report, terminal.choice.verbose), tuple(report.errors))


def _is_needed(plan: DryRun) -> bool:
    return bool(plan.broken or plan.snapshots or plan.stopped)


def _display(report: RecoverReport, everything: bool) -> RenderableType:
    if report.nothing_to_do:
        return _NOTHING
    return paragraphs(
        None if report.chapter is None else Text(_begun(report.chapter)),
        modes_changed(report.modes),
        snapshot_table(report.snapshots, everything=everything),
        tables_waiting(report.waiting),
    )


def _begun(chapter: WindowMarker) -> str:
    broke = chapter.broke
    since = "" if broke is None else f": {broke.what}; the log ended at {Lsn(broke.end)}"
    return f"a new chapter of the change log begins with window {chapter.ordinal}, at {chapter.window.lo}{since}"
