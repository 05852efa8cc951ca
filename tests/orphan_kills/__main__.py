"""``python -m tests.orphan_kills --kills 50 --seed 1``: see ``campaign``. Exit code 1 where the lake differs."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from spark_jobs.spark.delta_jars import fill_folder
from tests.fixtures.servers import fresh_database, started
from tests.fixtures.spark import JARS
from tests.fixtures.spark_connect import connect_server
from tests.orphan_kills.campaign import run_campaign


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.orphan_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="of load, moments and choices; by default a new one")
    chosen = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 31) if chosen.seed is None else chosen.seed
    fill_folder(JARS)
    with (
        tempfile.TemporaryDirectory(prefix="orphan-kills-", ignore_cleanup_errors=True) as folder,
        started(18) as postgres,
        fresh_database(postgres) as database,
        connect_server(Path(folder), JARS, cores=4) as server,
    ):
        figures = run_campaign(database, server, Path(folder), chosen.kills, seed)
    sys.stdout.write(f"{figures}\n")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
