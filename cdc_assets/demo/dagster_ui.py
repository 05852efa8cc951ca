"""Dagster's UI on the demo: its server, its lake, its runs.

The server is the one that was kept in the demo's folder, or a new one with the demo's tables. The demo has a Dagster
instance of its own, in which the sensor is turned on from the beginning.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from cdc_assets.demo.demo_folder import (
    DSN_VARIABLE,
    FOLDER_VARIABLE,
    begin_anew,
    configuration_of,
    dagster_home_of,
    require_own_folder,
)
from cdc_assets.demo.demo_server import keep_server, kept_server, load_demo, new_server
from spark_jobs.errors import CdcError, ConfigurationError

_HERE = Path(__file__).parent
_DAGSTER = (sys.executable, "-m", "dagster")
_WORKSPACE = ("--workspace", str(_HERE / "workspace.yaml"))
_SENSOR = "shop_slot_lag"
_STOP_SECONDS = 60


def require_free_port(port: int) -> None:
    """Raises CdcError if something listens there already: Dagster would go on without its UI, and what answers at the
    address would be somebody else's."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Dagster does: else a port just left is in use
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            hint = "choose another one with --port, or stop what listens there"
            raise CdcError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}", hint=hint) from None


def show_in_dagster(folder: Path, *, jars: str, port: int) -> int:
    """Serve the UI until it is interrupted; the exit code of ``dagster dev``. ``jars`` is for a new demo.

    Raises ConfigurationError if the UI or an embedded PostgreSQL is not installed, or ``folder`` holds something else.
    """
    if find_spec("dagster_webserver") is None:
        raise ConfigurationError("Dagster's UI is not installed", hint="pip install 'dagster-postgres-cdc[demo]'")
    require_own_folder(folder)
    with _demo(folder, jars) as dsn:
        home = dagster_home_of(folder)
        environment = {
            **os.environ,
            DSN_VARIABLE: dsn,
            FOLDER_VARIABLE: str(folder),
            "DAGSTER_HOME": str(home),
        }
        if _is_new(home):
            start = [*_DAGSTER, "sensor", "start", _SENSOR, *_WORKSPACE]
            subprocess.run(start, env=environment, check=True, stdout=subprocess.DEVNULL)
        return _dagster_dev(environment, port)


@contextmanager
def _demo(folder: Path, jars: str) -> Iterator[str]:
    """The connection string of the demo's running server."""
    with kept_server(folder) as kept:
        if kept is not None and configuration_of(folder).is_file():
            yield kept.dsn()
            return
    with new_server(folder) as server:
        begin_anew(folder, jars)
        load_demo(server, scale=1)
        keep_server(folder, server)
        yield server.dsn()


def _is_new(home: Path) -> bool:
    """Whether the instance in ``home`` is new: then it gets the configuration that the documentation recommends."""
    new = not (home / "dagster.yaml").exists()
    if new:
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(_HERE / "dagster.yaml", home)
    return new


def _dagster_dev(environment: Mapping[str, str], port: int) -> int:
    # in a session of its own: Ctrl-C reaches only this process, which passes it on once, and then stops the server
    command = [*_DAGSTER, "dev", *_WORKSPACE, "--port", str(port)]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        return process.wait(_STOP_SECONDS)
