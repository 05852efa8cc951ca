"""What all steps of one command share, or of one step in Dagster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Pipeline
from spark_jobs.postgres.connection import Connection, connected, source_errors
from spark_jobs.postgres.write_guard import UNGUARDED, WriteGuard, write_guard
from spark_jobs.progress import Progress, silent
from spark_jobs.spark.provider import LazySession, SparkProvider


@dataclass(frozen=True)
class Run:
    """``spark`` is called only when there is work for Spark. ``guard`` keeps other processes from a table while it is
    written. ``run_id``: whose commits they are, for whoever reads the tables' history. ``capturing`` is held while a
    window is landed, where another thread of this process may land windows too."""

    pipeline: Pipeline
    spark: SparkProvider
    guard: WriteGuard = UNGUARDED
    run_id: str = ""
    progress: Progress = silent
    capturing: AbstractContextManager[object] = field(default_factory=nullcontext)

    @property
    def log(self) -> ChangeLog:
        return ChangeLog(self.pipeline.lake.change_log)

    def of(self, pipeline: Pipeline) -> Run:
        """The same run of ``pipeline``, with what its patterns match now."""
        return replace(self, pipeline=pipeline)

    def expect(self, is_little: Callable[[], bool]) -> None:
        """Tell Spark's provider, if it wants to know, whether little is ahead of the session."""
        if isinstance(self.spark, LazySession):
            self.spark.expect(is_little)

    @contextmanager
    def source(self) -> Iterator[Connection]:
        """A session at the source, for statements of one thread at a time: the guard's, if it has one. Their
        transactions must be short, as other threads take locks with that session."""
        guarding = self.guard.connect()
        session = connected(self.pipeline.source.dsn) if guarding is None else nullcontext(guarding)
        with session as connection, source_errors("a statement failed"):
            yield connection

    @contextmanager
    def guarded(self) -> Iterator[Run]:
        """The run with locks in the source, which end with the context; itself if it has them already."""
        if self.guard is not UNGUARDED:
            yield self
            return
        with write_guard(self.pipeline.source) as guard:
            yield replace(self, guard=guard)
