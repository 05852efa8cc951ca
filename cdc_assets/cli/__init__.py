"""The command ``postgres-cdc``: the same functions that the assets call, from a shell, cron or Airflow.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted. The result goes to stdout (one JSON
document with ``--json``), everything else to stderr.
"""

from __future__ import annotations

import os
import signal
import sys

from cdc_assets.cli.invocation import run

_TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    """The console script: runs the command line and ends the process with its exit code."""
    # exit as on Ctrl-C: connections are closed, Spark and the demo's server are stopped
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    # NumPy's library of linear algebra starts a thread per core when it is loaded, and nothing here uses it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(run(sys.argv[1:]))


__all__ = ["main", "run"]
