"""How Spark reads changes: what plans a batch or a stream, on the driver, and what is left of it in a task.

Planning lists the log's files and finds out how they are to be decoded. Tasks read and decode; their executors need
pyarrow and NumPy, and nothing of ours.
https://spark.apache.org/docs/latest/api/python/tutorial/sql/python_data_source.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from spark_jobs.change_log.log import no_change_log
from spark_jobs.change_log.window_marker import WindowMarker, first_missing
from spark_jobs.errors import GapError, SchemaChangeError
from spark_jobs.logged_changes.change_rows import ChangeColumns
from spark_jobs.logged_changes.changes import plan_of
from spark_jobs.logged_changes.descriptions import counted, looks_of
from spark_jobs.logged_changes.logged_table import LoggedTable, TableUntil
from spark_jobs.logged_changes.plan import Plan
from spark_jobs.logged_changes.shipped_piece import packed, unpacked
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.replay.points import Point
from spark_jobs.schema.table_shape import TableShape

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.1: the trigger availableNow takes one batch there, and the next start goes on
        SupportsTriggerAvailableNow = object

_NEW_QUERY = "read the table itself, then begin a new query after it, with another checkpoint and the option from"


@dataclass(frozen=True)
class ShownColumns:
    """The columns that are shown: those of the table at the LSN ``hi``. ``mask``: the word of its masks then."""

    shape: TableShape
    mask: str
    hi: Lsn

    @property
    def ddl(self) -> str:
        return ChangeColumns(self.shape.columns).ddl


class TaskReader(DataSourceReader):
    """What tasks need of a reader. ``schema``: the one that Spark expects, to the letter."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # Spark plans such a one where there is none
            yield from (batch.cast(self._schema) for batch in unpacked(partition.value).batches())


class ChangesReader(TaskReader):
    """Plans the changes of a range."""

    def __init__(self, schema: pa.Schema, plan: Plan) -> None:
        super().__init__(schema)
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(packed(piece)) for piece in self._plan.pieces()]

    def __reduce__(self) -> tuple[object, ...]:
        return TaskReader, (self._schema,)


class TaskStream(DataSourceStreamReader):
    """What tasks need of a stream. ``schema``: as in ``TaskReader``."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from (batch.cast(self._schema) for batch in unpacked(partition.value).batches())


@dataclass(frozen=True)
class Offset:
    """How far a stream is: it has all transactions that committed before ``lsn``, which lies after window ``window`` of
    the chapter ``chapter``, and at its end unless the stream has just begun."""

    chapter: int
    window: int
    lsn: str

    @classmethod
    def after(cls, marker: WindowMarker) -> Offset:
        return cls(marker.identity.chapter, marker.ordinal, str(marker.window.hi))


class ChangesStream(TaskStream, SupportsTriggerAvailableNow):
    """Plans a stream's batches: the windows that were landed between two offsets. What a batch holds depends on its
    offsets and the log alone, so a batch that Spark runs again is the same. ``columns``: those that it began with."""

    def __init__(self, schema: pa.Schema, table: LoggedTable, from_: Point | None, columns: ShownColumns) -> None:
        super().__init__(schema)
        self._table, self._from, self._columns = table, from_, columns
        self._target: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        plan, lo, _ = plan_of(self._table, self._from, None)
        last = plan.before or plan.markers[0]
        window = last.ordinal if plan.before is not None else last.ordinal - 1
        return asdict(Offset(last.identity.chapter, window, str(lo)))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._landed()

    def latestOffset(  # noqa: N802 - Spark 4.1 gives no arguments
        self, _start: dict[str, Any] | None = None, _limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        return asdict(self._target or self._landed())

    def _landed(self) -> Offset:
        last = self._table.log.checkpoint()
        if last is None:
            raise no_change_log(self._table.log.path)
        return Offset.after(last)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, last = Offset(**start), Offset(**end)
        known = self._table.log.markers(begin.window - 1)
        before = next((marker for marker in known if marker.ordinal == begin.window), None)
        markers = [marker for marker in known if begin.window < marker.ordinal <= last.window]
        self._require_all(begin, last, markers)
        if not markers:
            return []
        self._require_columns(markers)
        shape, mask = self._columns.shape, self._columns.mask
        plan = Plan(self._table, shape, mask, markers, before, since=Lsn.parse(begin.lsn))
        return [InputPartition(packed(piece)) for piece in plan.pieces()]

    def _require_all(self, begin: Offset, last: Offset, markers: Sequence[WindowMarker]) -> None:
        log, name = self._table.log, self._table.name
        missing = first_missing(begin.window, markers)
        if missing is not None or len(markers) != last.window - begin.window:
            oldest = log.first_window()
            begins = "it is empty" if oldest is None else f"it begins at {oldest.window.lo}, window {oldest.ordinal}"
            raise GapError(
                f"the stream of {name} has reached {begin.lsn}, and the change log {log.path} no longer holds window"
                f" {begin.window + 1}: {begins}",
                hint=_NEW_QUERY,
            )
        for marker in markers:
            if marker.broke is not None and marker.identity.chapter != begin.chapter:
                raise GapError(
                    f"the stream of {name} ends at {Lsn(marker.broke.end)}: {marker.broke.what}. What was committed"
                    f" until {marker.window.lo} was never sent, and the tables were read again",
                    hint=_NEW_QUERY,
                )

    def _require_columns(self, markers: Sequence[WindowMarker]) -> None:
        """Raises SchemaChangeError if the table has other columns after these windows than the stream shows."""
        relid = self._columns.shape.relid
        if markers[-1].window.hi <= self._columns.hi or not any(
            counted(marker, relid) or looks_of(marker, relid) for marker in markers
        ):
            return
        if not any(counted(marker, relid) for marker in markers):  # then these do not say which columns are sent
            landed = LandedWindows.of_each_chapter(self._table.lake)[-1].markers
            markers = [marker for marker in landed if marker.ordinal <= markers[-1].ordinal]
        until = TableUntil(self._table, markers)
        now = ShownColumns(until.shape, until.mask, markers[-1].window.hi)
        if now.ddl != self._columns.ddl:
            raise SchemaChangeError(
                f"the columns of {self._table.name} changed, in windows {markers[0].ordinal} to {markers[-1].ordinal}",
                hint="start the query again, with the same checkpoint: it goes on with the columns of now",
            )
        self._columns = now

    def __reduce__(self) -> tuple[object, ...]:
        return TaskStream, (self._schema,)
