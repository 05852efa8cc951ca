"""``python -m tests.random_schemas --rounds 500 --seed 1``: see ``campaign``. Exit code 1 where the lake differs."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from spark_jobs.configuration import SparkOptions
from spark_jobs.spark.delta_jars import fill_folder
from spark_jobs.spark.session import spark_session
from tests.fixtures.server_binaries import versions_here
from tests.fixtures.servers import started
from tests.fixtures.spark import JARS
from tests.random_schemas.campaign import run_campaign


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_schemas", description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None, help="of all that happens; by default a new one")
    parser.add_argument("--world", type=int, default=0, help="begin with this one, to see it again")
    parser.add_argument("--racing", type=float, default=0.3, help="share of worlds that change while they are read")
    chosen = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 31) if chosen.seed is None else chosen.seed
    fill_folder(JARS)
    folder = Path(tempfile.mkdtemp(prefix="random-schemas-"))
    with ExitStack() as stack:
        servers = [stack.enter_context(started(version)) for version in versions_here()]
        spark = spark_session(SparkOptions(master="local[2]", jars=str(JARS)))
        stack.callback(spark.stop)
        figures = run_campaign(spark, servers, folder, chosen.rounds, seed, chosen.world, chosen.racing)
    sys.stdout.write(f"{figures}\n")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
