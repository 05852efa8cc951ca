"""Run as a program, in a process of its own that dies without warning at a named step of the job.

``python -m tests.spark.crash STEP PIPELINE``: one of STEPS, and a pickled Pipeline.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from spark_jobs.apply import apply_tables
from spark_jobs.capture import chapter
from spark_jobs.capture.capture import capture, land_window
from spark_jobs.capture.session import capture_session
from spark_jobs.configuration import Pipeline
from spark_jobs.logicalrep.lsn import Window
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.recover import recover
from spark_jobs.run import Run
from spark_jobs.snapshot import snapshot as snapshots
from spark_jobs.snapshot.snapshot import snapshot
from spark_jobs.spark.session import spark_session
from spark_jobs.storage import Location
from spark_jobs.sync import sync
from spark_jobs.writers import table_writer
from spark_jobs.writers.table_commit import Provenance
from spark_jobs.writers.with_arrow import whole_table
from tests.fixtures.forked_programs import ForkedProgram, start_program

SAID = "said"


def started(step: str, pipeline: Pipeline, folder: Path) -> ForkedProgram:
    """That process; ``folder`` is of the test, for the pickled pipeline and what is printed."""
    file = folder / "pipeline.pickle"
    file.write_bytes(pickle.dumps(pipeline))
    with (folder / SAID).open("w") as output:
        return start_program("tests.spark.crash", step, str(file), stdout=output, stderr=output)


def while_landing(pipeline: Pipeline) -> None:
    """In the middle of a window: some of its rows are written, nothing is committed."""
    _land(pipeline, die_after_a_batch=True)


def landed_not_advanced(pipeline: Pipeline) -> None:
    _land(pipeline, die_after_a_batch=False)


def advanced_not_applied(pipeline: Pipeline) -> None:
    capture(pipeline)
    _die()


def somewhere_in_sync(pipeline: Pipeline) -> None:
    """Says ``ready`` when its session is up, then syncs; the test kills it when it likes."""
    spark = spark_session(pipeline.spark)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sync(pipeline, lambda: spark)


def in_snapshots(pipeline: Pipeline) -> None:
    """Takes every table anew, without Spark; the first ones are read, none is committed."""
    whole_table.WholeTable.commit = lambda *_: _die()  # type: ignore[method-assign, assignment]
    snapshot(Run(replace(pipeline, merge_engine="auto"), _die))  # type: ignore[arg-type]


def between_first_snapshots(pipeline: Pipeline) -> None:
    """The first table has its first snapshot, the files of the last one are written, and not yet committed."""
    first, *_, last = (pipeline.lake.table(table.name) for table in pipeline.tables or ())
    create = whole_table.create_table  # type: ignore[attr-defined]

    def create_or_die(path: Location, *arguments: Any, **options: Any) -> bool:
        while path == last:
            if Path(first, "_delta_log", "00000000000000000000.json").exists():
                _die()
            time.sleep(0.01)
        return create(path, *arguments, **options)

    whole_table.create_table = create_or_die  # type: ignore[attr-defined]
    spark = spark_session(pipeline.spark)
    sync(pipeline, lambda: spark)


def recover_slot_made(pipeline: Pipeline) -> None:
    """The new slot is there, its chapter is not begun."""
    chapter.land_first_marker = lambda *_: _die()  # type: ignore[assignment]
    recover(pipeline, _die)  # type: ignore[arg-type]


def recover_chapter_begun(pipeline: Pipeline) -> None:
    """The first snapshot is about to be taken."""
    snapshots.snapshot_tables = lambda *_, **__: _die()  # type: ignore[assignment, attr-defined]
    recover(pipeline, _die)  # type: ignore[arg-type]


def recover_between_snapshots(pipeline: Pipeline) -> None:
    """The first table is read again; the files of the last one are written, and not yet committed."""
    first, *_, last = (pipeline.lake.table(table.name) for table in pipeline.tables or ())
    commit, before = whole_table.WholeTable.commit, DeltaTable(first).version()

    def commit_or_die(target: whole_table.WholeTable, *arguments: Any) -> Any:
        while target.path == last:
            if DeltaTable(first).version() > before:
                _die()
            time.sleep(0.01)
        return commit(target, *arguments)

    whole_table.WholeTable.commit = commit_or_die  # type: ignore[method-assign, assignment]
    recover(pipeline, lambda: spark_session(pipeline.spark))


def partitions_staged(pipeline: Pipeline) -> None:
    """The rows of a partition are read again, and lie in the lake; nothing is committed."""
    write = table_writer.write_net

    def write_or_die(table: Any, net: Any, provenance: Provenance, **options: Any) -> Any:
        return _die() if provenance.partitions else write(table, net, provenance, **options)

    apply_tables.write_net = write_or_die  # type: ignore[attr-defined]
    spark = spark_session(pipeline.spark)
    sync(pipeline, lambda: spark)


def partitions_written(pipeline: Pipeline) -> None:
    """They are committed, and nobody has heard of it."""
    write = table_writer.write_net

    def write_and_die(table: Any, net: Any, provenance: Provenance, **options: Any) -> Any:
        written = write(table, net, provenance, **options)
        return _die() if provenance.partitions else written

    apply_tables.write_net = write_and_die  # type: ignore[attr-defined]
    spark = spark_session(pipeline.spark)
    sync(pipeline, lambda: spark)


BORDERS = {step.__name__: step for step in (while_landing, landed_not_advanced, advanced_not_applied)}
STEPS = BORDERS | {step.__name__: step for step in (somewhere_in_sync, in_snapshots)}
STEPS |= {step.__name__: step for step in (recover_slot_made, recover_chapter_begun, recover_between_snapshots)}
STEPS |= {step.__name__: step for step in (between_first_snapshots, partitions_staged, partitions_written)}


def _land(pipeline: Pipeline, *, die_after_a_batch: bool) -> None:
    with capture_session(pipeline) as session:
        window = Window(session.checkpoint.window.hi, flushed_lsn(session.control))

        def on_batch(messages: int) -> None:
            if die_after_a_batch and messages:
                _die()

        land_window(replace(session, on_batch=on_batch), window)
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    STEPS[sys.argv[1]](pickle.loads(Path(sys.argv[2]).read_bytes()))  # noqa: S301 - the test's own file
