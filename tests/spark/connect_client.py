"""Run as a program, a client of a Spark Connect server: one run of the product, whose writes may be held.

``python -m tests.spark.connect_client RUN``: a pickled Run. A run that is held is there to be killed.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.run import Run
from spark_jobs.snapshot import table_read
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.spark.session import spark_session
from spark_jobs.sync import sync
from tests.spark.held_session import Gate, Step, held_session


@dataclass(frozen=True)
class Order:
    """``names`` are those to snapshot. Without a ``gate`` nothing is held. ``wrote_before``: a table of somebody else,
    with the same session."""

    what: Literal["sync", "snapshot"]
    pipeline: Pipeline
    run_id: str
    names: tuple[QualifiedName, ...] = ()
    gate: Gate | None = None
    step: Step = "during"
    wrote_before: bool = False

    @contextmanager
    def process(self, folder: Path) -> Iterator[subprocess.Popen[str]]:
        """The client, killed when the context ends. ``folder`` is for the file that tells it what to do."""
        file = folder / f"{self.run_id}.pickle"
        file.write_bytes(pickle.dumps(self))
        command = [sys.executable, "-m", "tests.spark.connect_client", str(file)]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield client
        finally:
            client.kill()
            client.communicate()

    def to_its_end(self, folder: Path) -> None:
        with self.process(folder) as client:
            output = client.communicate(timeout=400)[0]
            assert client.returncode == 0, output


def main(file: str) -> None:
    order: Order = pickle.loads(Path(file).read_bytes())  # noqa: S301 - the test's own file
    table_read._SMALL_BYTES = -1  # executors read every table
    spark = spark_session(order.pipeline.spark)
    if order.wrote_before:
        spark.range(1).write.format("delta").save(f"{order.pipeline.lake.path}/of somebody else")
    if order.gate is not None:
        spark = held_session(spark, order.gate, order.step)
    errors: list[CdcError]
    if order.what == "sync":
        errors = list(sync(order.pipeline, lambda: spark, run_id=order.run_id).errors)
    else:
        snapshots = snapshot(Run(order.pipeline, lambda: spark, run_id=order.run_id), order.names)
        errors = [each.error for each in snapshots if each.error is not None]
    for error in errors:
        sys.stderr.write(f"{error}\n")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main(sys.argv[1])
