"""``postgres-cdc maintain``: removes old data, compacts small files."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.options import config_option, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.terminal import Terminal, new_table
from cdc_assets.configuration.load_pipeline import load_pipeline
from spark_jobs.maintain.maintain import MaintainReport, maintain
from spark_jobs.readable_size import size


@click.command("maintain")
@config_option
@click.option("--simplify", is_flag=True, help="Also drop features of Delta that a table does not need, by Spark.")
@output_options
@click.pass_obj
def command(terminal: Terminal, config: Path, simplify: bool) -> Outcome:
    """Remove what is older than `retention`, compact files, clean up Delta's logs, vacuum. Run it once a day.

    Windows that a table, or the messages, still need stay, however old they are, and so does every version that a cut
    inside its retention names. It may be repeated, and run beside a sync.
    """
    pipeline = load_pipeline(config)
    with lazy_session(pipeline.spark) as spark, terminal.progress() as progress:
        report = maintain(pipeline, spark, simpler=simplify, progress=progress)
    return Outcome(report, _display(report), tuple(report.errors))


def _display(report: MaintainReport) -> Group:
    reach = f"the change log reaches back to window {report.first_window}, {report.reaches_back_to}"
    if report.held_by:
        reach += f"; older than its retention, because of {report.held_by}"
    features = [_features(report)] if any(table.simplified for table in report.tables) else []
    return Group(Text(reach), _files(report), *features)


def _files(report: MaintainReport) -> Table:
    shown = new_table("what", "files before", "files after", "size", "removed", right=("files before", "files after"))
    for name, done in (
        ("change log", report.change_log),
        ("cuts", report.cuts),
        ("_messages", report.messages),
        ("_unrepresentable", report.unrepresentable),
    ):
        if done is not None:
            before, after = f"{done.files_before:,}", f"{done.files_after:,}"
            shown.add_row(name, before, after, size(done.bytes_after), f"{done.deleted:,}")
    for table in report.tables:
        before, after = (f"{table.files.before:,}", f"{table.files.after:,}") if table.files else ("–", "–")
        shown.add_row(Text(str(table.name)), before, after, "", "")
    return shown


def _features(report: MaintainReport) -> Table:
    shown = new_table("table", "feature", "outcome")
    for table in report.tables:
        if table.simplified is not None:
            for feature in table.simplified.dropped:
                shown.add_row(Text(str(table.name)), feature, Text("dropped", style="green"))
            for kept in table.simplified.kept:
                shown.add_row(Text(str(table.name)), kept.name, Text(f"kept: {kept.reason}", style="dim"))
    return shown
