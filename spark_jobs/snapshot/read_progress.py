"""How much of a snapshot's tables has been read, as the server reports it of the sessions that read them.

Not asked of Spark: it knows only which tasks have ended, each of up to 256 MB, and over Connect in another way. The
server's view is the same for every Spark, and costs nothing but a look each second.
https://www.postgresql.org/docs/current/progress-reporting.html#COPY-PROGRESS-REPORTING
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import SecretStr

from spark_jobs.errors import CdcError
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.progress import Progress, Step
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.snapshot.range_read import RangeQuery
from spark_jobs.snapshot.table_read import TableRead

Result = TypeVar("Result")

_SECONDS = 1.0
_TIMEOUT = "5s"
# a session that waits for a lock has its query already, but copies nothing yet
_RUNNING = """
SELECT substring(a.query FROM %(mark)s), coalesce(p.bytes_processed, 0)
FROM pg_catalog.pg_stat_activity a LEFT JOIN pg_catalog.pg_stat_progress_copy p ON p.pid = a.pid
WHERE a.state = 'active' AND a.pid <> pg_catalog.pg_backend_pid() AND a.query ~ %(mark)s
"""


@dataclass
class TableProgress:
    """The reading of one table by ``tasks``; ``begun`` has, for each task seen so far, the last of its ranges seen."""

    tasks: Sequence[Sequence[RangeQuery]]
    begun: dict[int, int] = field(default_factory=dict)

    def bytes_read(self, running: Mapping[str, int]) -> int:
        """About how many of the table's stored bytes are read while ``running``: labels of ranges, with the bytes that
        the server has sent of each. These are not the stored bytes, so they count up to these at most."""
        running_at: dict[int, int] = {}
        for number, task in enumerate(self.tasks):
            for place, query in enumerate(task):
                if query.label in running:
                    running_at[number] = place
        self.begun |= running_at
        last = max(self.begun, default=-1)
        total = 0
        for number, task in enumerate(self.tasks[: last + 1]):
            sizes = [query.stored_bytes for query in task]
            if number in running_at:
                place = running_at[number]
                total += sum(sizes[:place]) + min(sizes[place], running[task[place].label])
            elif number < last:  # Spark begins tasks in their order, so this one has ended, seen or not
                total += sum(sizes)
            else:
                total += sum(sizes[: self.begun[number] + 1])
        return total


class ReadProgress:
    """The reading of all tables of a snapshot. ``show`` and ``ended`` belong to one thread, ``look`` to another."""

    def __init__(self, reads: Mapping[QualifiedName, TableRead], progress: Progress) -> None:
        self._progress = progress
        self._sizes = {name: read.stored_bytes for name, read in reads.items()}
        self._total = sum(self._sizes.values())
        self._tables = {name: TableProgress(read.tasks) for name, read in reads.items()}
        self._seen: Mapping[QualifiedName, int] = {}
        self._ended: set[QualifiedName] = set()
        self._shown = 0

    def look(self, connection: Connection, snapshot_name: str) -> None:
        """Ask the server. Raises SourceError."""
        mark = rf"/\* {snapshot_name} (\d+/\d+) \*/"  # see range_read.marked
        running: dict[str, int] = dict(connection.execute(_RUNNING, {"mark": mark}).fetchall())
        self._seen = {name: table.bytes_read(running) for name, table in self._tables.items()}

    def ended(self, name: QualifiedName) -> None:
        """The table is written, or has failed."""
        self._ended.add(name)
        if 0 < self._shown < self._total and self._ended.issuperset(self._sizes):
            self._show(str(name), self._total)

    def show(self) -> None:
        """Report what was seen, if that is more than before."""
        sizes = self._seen
        reading = [str(name) for name, table in self._tables.items() if table.begun and name not in self._ended]
        done = sum(size if name in self._ended else sizes.get(name, 0) for name, size in self._sizes.items())
        if reading and done > self._shown:
            self._show(" and ".join(reading), done)

    def _show(self, detail: str, done: int) -> None:
        self._shown = done
        self._progress(Step("read", detail, done, self._total, "bytes"))


@contextmanager
def read_progress(
    dsn: SecretStr, snapshot_name: str, reads: Mapping[QualifiedName, TableRead], progress: Progress
) -> Iterator[ReadProgress]:
    """Watch the sessions that read ``reads`` in this snapshot, until the context ends. What keeps it from watching, a
    lost connection or none to be had, only ends the watching."""
    reading, stop = ReadProgress(reads, progress), threading.Event()

    def watch() -> None:
        if stop.wait(_SECONDS):
            return  # small tables are done by then
        try:
            with connected(dsn, statement_timeout=_TIMEOUT) as connection:
                while not stop.is_set():
                    reading.look(connection, snapshot_name)
                    stop.wait(_SECONDS)
        except CdcError:
            return

    # a daemon, which is joined only briefly: the snapshot must not be held open to measure its progress
    thread = threading.Thread(target=watch, name="read-progress", daemon=True)
    thread.start()
    try:
        yield reading
    finally:
        stop.set()
        thread.join(_SECONDS)


def as_they_end(running: set[Future[Result]], reading: ReadProgress) -> Iterator[Future[Result]]:
    """Each of ``running`` when it has ended; meanwhile ``reading`` is shown."""
    while running:
        ended, running = wait(running, _SECONDS, FIRST_COMPLETED)
        if not ended:
            reading.show()
        yield from ended


@contextmanager
def cancelled_on_error(running: Iterable[Future[Result]]) -> Iterator[None]:
    """Those of ``running`` that have not begun never do, if an exception ends the context."""
    try:
        yield
    except BaseException:
        for future in running:
            future.cancel()
        raise
