"""``make ui``: Dagster's UI on this code location, and on the demo where no other source is named.

Without ``SHOP_DSN`` it starts the server that ``make demo`` has kept, or a new one with the demo's tables, and stops it
at the end. The demo has a Dagster instance of its own, in which the sensor is turned on from the beginning.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cdc_assets.demo.demo_server import keep_server, kept_server, load_demo, new_server
from cdc_assets.demo.demonstration import DAGSTER_HOME

_REPOSITORY = Path(__file__).parents[1]
_DAGSTER = (sys.executable, "-m", "dagster")
_WORKSPACE = ("--workspace", str(_REPOSITORY / "workspace.yaml"))
_SENSOR = "shop_slot_lag"
_STOP_SECONDS = 60


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, required=True, help="the demo's folder")
    parser.add_argument("--jars", required=True, help="the folder with Delta's jars")
    options, others = parser.parse_known_args(arguments)
    if os.environ.get("SHOP_DSN"):
        _instance(Path(os.environ["DAGSTER_HOME"]))
        return _dagster_dev(os.environ, others)
    with _demo(options.demo.resolve()) as dsn:
        home = options.demo.resolve() / DAGSTER_HOME
        environment = {
            **os.environ,
            "SHOP_DSN": dsn,
            "SHOP_LAKE": str(options.demo.resolve() / "lake"),
            "POSTGRES_CDC_JARS": str(Path(options.jars).resolve()),
            "DAGSTER_HOME": str(home),
        }
        if _instance(home):
            start = [*_DAGSTER, "sensor", "start", _SENSOR, *_WORKSPACE]
            subprocess.run(start, env=environment, cwd=_REPOSITORY, check=True, stdout=subprocess.DEVNULL)
        return _dagster_dev(environment, others)


@contextmanager
def _demo(folder: Path) -> Iterator[str]:
    """The connection string of the demo's running server."""
    with kept_server(folder) as kept:
        if kept is not None:
            yield kept.dsn()
            return
    # without its server a lake cannot be followed on
    for left in ("lake", DAGSTER_HOME):
        shutil.rmtree(folder / left, ignore_errors=True)
    with new_server(folder) as server:
        load_demo(server, scale=1)
        keep_server(folder, server)
        yield server.dsn()


def _instance(home: Path) -> bool:
    """Whether the instance in ``home`` is new: then it gets the configuration that the repository recommends."""
    new = not (home / "dagster.yaml").exists()
    if new:
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(_REPOSITORY / "orchestration" / "dagster.yaml", home)
    return new


def _dagster_dev(environment: Mapping[str, str], arguments: Sequence[str]) -> int:
    # in a session of its own: Ctrl-C reaches only this process, which passes it on once, and then stops the server
    command = [*_DAGSTER, "dev", *_WORKSPACE, *arguments]
    process = subprocess.Popen(command, env=environment, cwd=_REPOSITORY, start_new_session=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        return process.wait(_STOP_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
