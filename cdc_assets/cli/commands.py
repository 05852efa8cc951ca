"""The group of commands; each is loaded when it is called, and none of them loads Spark or Dagster."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version

import click

# in the order of --help: the commands that one runs first come first
SUMMARIES = {
    "init": "Write a configuration from what a database holds.",
    "config": "Check the configuration file, or show it with every default.",
    "doctor": "Check every precondition, change nothing.",
    "sync": "Create what is missing and bring every table up to the source.",
    "follow": "Sync all day in one process, with one Spark session.",
    "status": "Show how far slot, change log and tables are.",
    "recover": "Recover from a slot that was lost, or moved by someone else.",
    "snapshot": "Take new snapshots of tables, all at one LSN.",
    "capture": "Land the slot's windows in the change log, without Java.",
    "apply": "Bring tables up to the change log.",
    "replay": "Apply a range of the change log again, or build a table's earlier state.",
    "verify": "Compare tables with the source, row by row, at one LSN.",
    "cut": "Show which Delta version of each table shows one LSN.",
    "changes": "Print every change of a table in a range, as JSON lines or Arrow.",
    "register": "Give tables their names in Spark's catalogue.",
    "maintain": "Remove old data, compact small files.",
    "forget": "Remove every trace of rows that the source no longer has.",
    "drop": "Remove what a pipeline has made: its slot, its publication, on request its lake.",
    "demo": "Try it out on this machine, in a few minutes.",
}


class LazyGroup(click.Group):
    """Each command is ``command`` in the module of its name; --help loads none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(SUMMARIES)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in SUMMARIES:
            return None
        # imports pyarrow, which every command needs, and --help does not
        from cdc_assets.cli.without_pandas import keep_pandas_out

        keep_pandas_out()
        command = import_module(f"cdc_assets.cli.{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError for one that does not exist, with the name that is most like it."""
        if (near := get_close_matches(args[0], SUMMARIES, n=1)) and args[0] not in SUMMARIES:
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{near[0]}'?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version("dagster-postgres-cdc"), prog_name="postgres-cdc")
def postgres_cdc() -> None:
    """PostgreSQL tables replicated into Delta Lake, exactly once.

    Start with `init`, which writes a configuration, and `doctor`, which checks both sides and says what is missing;
    then `sync`, again and again: it creates publication, slot and snapshots if they are missing and brings every table
    up to the source.

    Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
    """
