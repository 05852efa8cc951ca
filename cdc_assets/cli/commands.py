"""The group of commands; each is loaded when it is called, and none of them loads Spark or Dagster."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version

import click

# in the order of --help: what one runs first stands first
_NAMES = ("doctor", "sync", "status", "snapshot", "capture", "apply", "demo")


class LazyGroup(click.Group):
    """Each command lives in the module of its name, as ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _NAMES:
            return None
        command = import_module(f"cdc_assets.cli.{cmd_name}").command
        return command if isinstance(command, click.Command) else None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("dagster-postgres-cdc"), prog_name="postgres-cdc")
def postgres_cdc() -> None:
    """PostgreSQL tables followed into Delta Lake, exactly once.

    Start with `doctor`, which checks both sides and says what is missing; then `sync`, again and again: it makes
    publication, slot and snapshots where they are missing and brings every table up to the source.

    Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
    """
