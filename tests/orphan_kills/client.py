"""Run as a program that is killed at some moment: applies in a loop, now and then syncs or takes a snapshot anew.

``python -m tests.orphan_kills.client PIPELINE NAME SEED``: a pickled Pipeline, the run's id. Says ``ready`` when its
session is up, and begins at a line on its input, so that it can stand by while another one is killed.
"""

from __future__ import annotations

import pickle
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.apply.apply import apply
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import CdcError
from spark_jobs.run import Run
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.spark.session import spark_session
from spark_jobs.sync import sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# a bare apply comes soonest to its first write, while the write of the one before is still going on
_APPLIES, _SYNCS, _SNAPSHOTS = 6, 2, 2
# of the runs: their writes go without the server, which may be about to commit those of the one before
_WITHOUT_SPARK = 0.3


def main(pipeline_file: str, name: str, seed: str) -> None:
    pipeline: Pipeline = pickle.loads(Path(pipeline_file).read_bytes())  # noqa: S301 - our own file
    rng = random.Random(seed)  # noqa: S311
    spark = spark_session(pipeline.spark)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    while True:
        try:
            errors = _one_run(pipeline, spark, name, rng)
        except CdcError as error:
            errors = [error]
        for each in errors:
            # the one before may hold a slot or a lock for a moment yet; the last sync must have no error
            sys.stderr.write(f"{name}: {each}\n")
        sys.stderr.flush()


def _one_run(pipeline: Pipeline, spark: SparkSession, name: str, rng: random.Random) -> list[CdcError]:
    run = rng.choices([apply, sync, snapshot], [_APPLIES, _SYNCS, _SNAPSHOTS])[0]
    if rng.random() < _WITHOUT_SPARK:
        pipeline = replace(pipeline, merge_engine="auto")
    if run is apply:
        return list(apply(Run(pipeline, lambda: spark, run_id=name)).errors)
    if run is sync:
        return list(sync(pipeline, lambda: spark, run_id=name).errors)
    assert pipeline.tables is not None
    table = rng.choice(pipeline.tables).name
    return [
        outcome.error
        for outcome in snapshot(Run(pipeline, lambda: spark, run_id=name), [table])
        if outcome.error is not None
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
