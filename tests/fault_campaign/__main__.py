"""``python -m tests.fault_campaign --runs 300 --seed 1``: see ``campaign``.

Exit code 1 where the lake differs from the source, or where an error of a client is not one clear line.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from spark_jobs.spark.delta_jars import fill_folder
from tests.fault_campaign.campaign import run_campaign
from tests.fault_campaign.plan import KINDS
from tests.fixtures.spark import JARS


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault_campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="of load, faults and moments; by default a new one")
    parser.add_argument("--only", action="append", choices=KINDS, default=[], help="faults of this kind; repeatable")
    parser.add_argument("--log", type=Path, default=None, help="where the clients' errors are kept")
    chosen = parser.parse_args(arguments)
    # a polite end: the disks are unmounted, the server and the clients are gone
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seed = secrets.randbelow(1 << 31) if chosen.seed is None else chosen.seed
    fill_folder(JARS)
    with tempfile.TemporaryDirectory(prefix="fault-campaign-", ignore_cleanup_errors=True) as folder:
        try:
            figures = run_campaign(Path(folder), JARS, chosen.runs, seed, tuple(chosen.only))
        finally:
            if chosen.log is not None and (log := Path(folder, "clients.log")).exists():
                shutil.copy(log, chosen.log)
    sys.stdout.write(f"{figures}\n")
    return 0 if figures.faultless else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
