"""A Spark session in which each write is held where the test wants it: of an orphan, or of one who is overtaken.

The product is handed the session as it is handed any other, and asks it for one session per commit. It has read the
table's state by then. Nothing waits for a time: a writer that is held says so by a file, and goes on when there is
another.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# before: the table's state is read, the statement has not begun. During: Delta's transaction has begun, and all rows
# have been given to the writer of its files
Step = Literal["before", "during"]


@dataclass(frozen=True)
class Gate:
    """Where writers wait: ``folder`` is reached by executors too."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Gate:
        folder.mkdir(parents=True)
        return cls(folder)

    def open(self) -> None:
        (self.folder / "open").touch()

    def wait_for(self, writers: int) -> None:
        """Until so many writers are held."""
        wait_until(lambda: len(list(self.folder.glob("held-*"))) >= writers)

    def hold(self) -> None:
        """As a writer. One that comes to an open gate goes through."""
        if not (self.folder / "open").exists():
            (self.folder / f"held-{uuid.uuid4()}").touch()
            wait_until((self.folder / "open").exists)


def held_session(spark: SparkSession, gate: Gate, step: Step) -> SparkSession:
    """``spark``, whose writes are held at ``gate``."""
    # the product tells a Connect client by the module of its class
    kind = type("HeldSession", (_HeldSession,), {"__module__": type(spark).__module__})
    session: SparkSession = kind(spark, gate, step)
    return session


class _HeldSession:
    def __init__(self, spark: SparkSession, gate: Gate, step: Step) -> None:
        self._spark, self._gate, self._step = spark, gate, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def newSession(self) -> Any:  # noqa: N802 - Spark's name
        return self._held(self._spark.newSession())

    def cloneSession(self) -> Any:  # noqa: N802
        own: Any = self._spark.cloneSession()  # type: ignore[attr-defined]
        own.release_session_on_close = True
        return self._held(own)

    def _held(self, own: SparkSession) -> Any:
        if self._step == "before":
            self._gate.hold()
            return own
        return _WritingSession(own, self._gate)


class _WritingSession:
    """The session of one commit: what it writes comes through the gate."""

    def __init__(self, own: SparkSession, gate: Gate) -> None:
        self._own, self._gate = own, gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def createDataFrame(self, *arguments: Any, **options: Any) -> DataFrame:  # noqa: N802
        return self._held(self._own.createDataFrame(*arguments, **options).coalesce(1))

    def range(self, *arguments: int) -> _Tasks:
        return _Tasks(self._own.range(*arguments), self._held)

    def _held(self, rows: DataFrame) -> DataFrame:
        return rows.mapInArrow(_holding(self._gate), rows.schema)


@dataclass(frozen=True)
class _Tasks:
    """Of a snapshot: it is held when they have read their rows."""

    numbers: DataFrame
    held: Callable[[DataFrame], DataFrame]

    def mapInArrow(self, *arguments: Any) -> DataFrame:  # noqa: N802
        return self.held(self.numbers.mapInArrow(*arguments))


def _holding(gate: Gate) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Runs in an executor, which has nothing of the tests: it takes along what it needs."""
    folder = str(gate.folder)

    def through_the_gate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time
        import uuid
        from pathlib import Path

        yield from batches
        opened = Path(folder, "open")
        if not opened.exists():
            Path(folder, f"held-{uuid.uuid4()}").touch()
        while not opened.exists():
            time.sleep(0.02)

    return through_the_gate
