"""Turns ``test_decoding``'s lines into rows of the change log with the order, ordinals, kinds and relids of pgoutput's.

``data`` is the line. A transaction's commit LSN is known only at its COMMIT line, and its rows are spooled until then:
that line's LSN is where the commit record ends, and ``commit_lsn`` is the LSN of the byte before. Relation messages are
made from the catalogue. Vectorised: Python runs per table and batch, and per TRUNCATE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.capture.message_batch import of_kinds
from spark_jobs.capture.test_decoding.line_batch import BEGIN, COMMIT, MESSAGE, PREPARED, STREAMED, TABLE, LineBatch
from spark_jobs.capture.test_decoding.line_places import LinePlaces, OpenTransaction, within
from spark_jobs.capture.test_decoding.line_tables import LineTable, LineTables
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.change_log.relation_versions import RelationSeen
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA, RowKind
from spark_jobs.change_log.window_marker import RelationCounts, UnknownMessage
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.errors import FieldError, LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.logicalrep.test_decoding.lines import Phase, TableName, TwoPhaseLine
from spark_jobs.logicalrep.test_decoding.read_line import read_line

Ints = npt.NDArray[np.int64]

# the columns in which rows are spooled until their transaction commits
_BODY = ("ordinal", "kind", "relid", "version", "data")
LINE_SPOOL_SCHEMA = pa.schema([CHANGE_LOG_SCHEMA.field(name) for name in _BODY])
_KNOWN = BEGIN + COMMIT + TABLE + MESSAGE + PREPARED
# the kind of a line whose table no longer exists and may have been a partition of a followed table. The line is kept
# but never applied: either the partition was both attached and removed since the last window, or the table's
# fingerprint has changed, and then the table is read again
_UNATTRIBUTED = "t"
_CHANGES = "IUDT"
_UNIX_US = pa.timestamp("us", tz="UTC")
_POSTGRES_EPOCH = 946_684_800_000_000  # 2000-01-01 in microseconds since 1970


@dataclass(frozen=True)
class _Placed:
    """The rows that lines become: ``line`` is the index of each row's line. Without a table, ``relid`` is 0 and
    ``version`` -1."""

    line: Ints
    kind: npt.NDArray[np.uint8]
    relid: Ints
    version: Ints


@dataclass
class LineWindowRows:
    """Turns one window's lines into rows. Its counts are complete once ``rows`` is exhausted.

    ``tables`` is called once, after the first lines have arrived: by then the catalogue has every table that they can
    belong to. ``unknown`` stays empty: a line that is not understood is an error.
    """

    ordinal: int
    window: Window
    tables: Callable[[], LineTables]
    spool: TransactionSpool
    with_messages: bool = False
    transactions: int = 0
    messages: int = 0
    bytes: int = 0
    logical_messages: int = 0
    relations: list[RelationSeen] = field(default_factory=list)
    unknown: tuple[UnknownMessage, ...] = ()
    _known: LineTables | None = None
    _open: OpenTransaction | None = None
    _prepared: dict[str, int] = field(default_factory=dict)
    _last_lsn: int = -1
    _counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    _sizes: Counter[int] = field(default_factory=Counter)
    _gone: dict[TableName, bool] = field(default_factory=dict)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn batches of the columns ``lsn`` and ``data`` into batches of CHANGE_LOG_SCHEMA.

        Lines of tables that are not followed are left out. Raises DecodeError, which names window and LSN.
        """
        for batch in batches:
            if batch.num_rows:
                lines = LineBatch(batch.column(0).to_numpy(), batch.column(1))
                try:
                    yield from self._batch(lines, self._known or self._ask())
                except LogicalRepError as error:
                    raise self._error(int(lines.lsn[0]), f"a line is not understood: {error}") from None
        if self._open is not None:
            raise self._error(self._last_lsn, "the last transaction has no COMMIT")
        if self._prepared:
            raise self._error(self._last_lsn, "a prepared transaction does not end here: the slot is two-phase")

    @property
    def _by_relid(self) -> dict[int, LineTable]:
        return {table.relid: table for table in self._known.by_name.values()} if self._known else {}

    def _ask(self) -> LineTables:
        self._known = self.tables()
        return self._known

    def relation_counts(self) -> tuple[RelationCounts, ...]:
        """The counts, ordered by relid. A dropped table has a negative relid."""
        by_relid = self._by_relid
        return tuple(
            RelationCounts(
                relid,
                *by_relid[relid].name,
                ChangeCounts(*(self._counts[relid, kind] for kind in "IUDT")),
                self._sizes[relid],
            )
            for relid in sorted({relid for relid, _ in self._counts})
        )

    def _batch(self, lines: LineBatch, known: LineTables) -> Iterator[pa.RecordBatch]:
        self._check_kinds(lines)
        two_phase = [(int(at), _two_phase(lines.line(int(at)))) for at in lines.where(PREPARED)]
        prepares = np.array([at for at, line in two_phase if line.phase is Phase.PREPARE], np.int64)
        placed, loose = self._placed(lines, known), lines.loose_messages
        changes = np.zeros(len(lines), np.bool_)
        changes[placed.line] = True
        changes[loose] = False
        places = LinePlaces.of(lines, changes, prepares, self._open, self.window.hi)
        self._check_order(places)
        body = _body(lines, placed, np.where(loose, 0, places.ordinal))
        of, outside = places.transaction[placed.line], loose[placed.line]
        if places.commit_lsn[0] >= 0:
            yield from self._spooled(int(places.xid[0]), int(places.commit_lsn[0]), int(places.commit_time[0]))
        committed = np.flatnonzero((places.commit_lsn[of] >= 0) & ~outside)
        ends = of[committed]
        yield from self._rows(body, committed, places.commit_lsn[ends], places.xid[ends], places.commit_time[ends])
        alone = np.flatnonzero(outside)
        yield from self._rows(body, alone, lines.lsn[placed.line[alone]], np.zeros(len(alone), np.int64), None)
        for number in np.unique(of[(places.commit_lsn[of] < 0) & ~outside]).tolist():
            rows = np.flatnonzero((of == number) & ~outside)
            self.spool.append(int(places.xid[number]), body.take(pa.array(rows)))
        for at, line in two_phase:
            yield from self._two_phase_end(line, int(places.xid[places.transaction[at]]), int(lines.lsn[at]))
        carried = places.commit_lsn[0] >= 0 and self._open is not None and self._open.changes > 0
        self.transactions += len(np.union1d(ends, [0] if carried else []))
        self._open = places.open

    def _check_kinds(self, lines: LineBatch) -> None:
        wrong = np.flatnonzero(~of_kinds(lines.kind, _KNOWN))
        if not len(wrong):
            return
        at = int(wrong[0])
        if len(lines.where(STREAMED)):
            what = "the plugin has streamed a transaction, and test_decoding never sends its changes then"
            raise self._error(int(lines.lsn[at]), what)
        raise FieldError(f"a line begins with {chr(lines.kind[at])!r}")

    def _check_order(self, places: LinePlaces) -> None:
        lsns = places.commit_lsn[places.commit_lsn >= 0]
        if len(lsns):
            # two that end after the window are both placed at its end
            if lsns[0] < self.window.lo or (np.diff(lsns, prepend=self._last_lsn) <= 0).any():
                raise self._error(int(lsns[0]), "the transactions come out of commit order, or are not of this window")
            self._last_lsn = int(lsns[-1])

    def _placed(self, lines: LineBatch, known: LineTables) -> _Placed:
        """The rows that the lines become: one per followed table that they name."""
        code, names, letter = lines.tables()
        tables = [known.followed(name) for name in names]
        relids, versions, sizes = [], [], []
        for name, followed in zip(names, tables, strict=True):
            lost = not followed and self._may_be_a_partition(name, known)
            relids += [0] if lost else [table.relid for table in followed]
            versions += [-1] if lost else [table.version for table in followed]
            sizes.append(1 if lost else len(followed))
        size = np.array([*sizes, 0], np.int64)
        repeats = size[code]
        kind = letter.copy()
        kind[(code >= 0) & np.array([*(not followed for followed in tables), False])[code]] = ord(_UNATTRIBUTED)
        messages = lines.where(MESSAGE) if self.with_messages else np.zeros(0, np.int64)
        repeats[messages], kind[messages] = 1, ord("M")
        line = np.repeat(np.arange(len(lines)), repeats)
        nth = np.arange(len(line)) - (np.cumsum(repeats) - repeats)[line]
        # the last place stands for lines without a table
        start = np.append(np.cumsum(sizes, dtype=np.int64) - sizes, len(relids)) if sizes else np.zeros(1, np.int64)
        place = start[code[line]] + nth
        return _Placed(line, kind[line], np.array([*relids, 0])[place], np.array([*versions, -1])[place])

    def _may_be_a_partition(self, names: tuple[TableName, ...], known: LineTables) -> bool:
        for name in names if known.partitioned else ():
            if name not in self._gone:
                self._gone[name] = known.is_gone(name)
            if self._gone[name]:
                return True
        return False

    def _spooled(self, xid: int, commit_lsn: int, commit_time: int) -> Iterator[pa.RecordBatch]:
        """The rows of a transaction that began in an earlier batch."""
        for body in self.spool.take(xid):
            every, ones = np.arange(len(body)), np.ones(len(body), np.int64)
            yield from self._rows(body, every, ones * commit_lsn, ones * xid, ones * commit_time)

    def _two_phase_end(self, line: TwoPhaseLine, xid: int, lsn: int) -> Iterator[pa.RecordBatch]:
        """Rows are emitted at COMMIT PREPARED; ROLLBACK PREPARED drops them."""
        if line.phase is Phase.PREPARE:
            self._prepared[line.gid] = xid
            return
        prepared = self._prepared.pop(line.gid, None)
        if line.phase is Phase.ROLLBACK:
            if prepared is not None:
                self.spool.drop(prepared)
            return
        if prepared is None or line.time is None:
            raise self._error(lsn - 1, "a COMMIT PREPARED without its transaction: the slot is two-phase")
        self.transactions += 1
        commit_lsn = int(within(np.array([lsn]), self.window.hi)[0])
        yield from self._spooled(prepared, commit_lsn, line.time + _POSTGRES_EPOCH)

    def _rows(
        self, body: pa.RecordBatch, rows: Ints, commit_lsn: Ints, xid: Ints, commit_time: Ints | None
    ) -> Iterator[pa.RecordBatch]:
        """These rows of ``body`` as rows of the log, after the Relation messages that they need. Counts the rows."""
        if not len(rows):
            return
        changes = body.take(pa.array(rows))
        size = len(rows)
        columns = {
            "window": pa.array(np.full(size, self.ordinal)),
            "commit_lsn": pa.array(commit_lsn),
            "xid": pa.array(xid),
            "commit_time": pa.nulls(size, _UNIX_US) if commit_time is None else pa.array(commit_time).cast(_UNIX_US),
            **{name: changes.column(name) for name in _BODY},
        }
        arrays = [columns.get(column.name, pa.nulls(size, column.type)) for column in CHANGE_LOG_SCHEMA]
        batch = pa.RecordBatch.from_arrays(arrays, schema=CHANGE_LOG_SCHEMA)
        self._count(batch)
        announced = self._announced(batch)
        if announced.num_rows:
            yield announced
        yield batch

    def _announced(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A RELATION row, at the place of the first change, for each relation that is new in the window."""
        known = {relation.relid for relation in self.relations}
        relids = batch.column("relid").fill_null(0).to_numpy()
        new = [relid for relid in np.unique(relids).tolist() if relid > 0 and relid not in known]
        rows = []
        for relid in new:
            first = batch.slice(int(np.argmax(relids == relid)), 1).to_pylist()[0]
            table = self._by_relid[relid]
            rows.append(
                first | {"kind": RowKind.RELATION.value, "version": table.version, "data": table.relation_message}
            )
            place = first["commit_lsn"], first["ordinal"]
            relation = RelationSeen(relid, table.version, *place, *table.name, table.relation_message)
            self.relations.append(relation)
        return pa.RecordBatch.from_pylist(rows, schema=CHANGE_LOG_SCHEMA)

    def _count(self, batch: pa.RecordBatch) -> None:
        kinds = np.frombuffer(batch.column("kind").buffers()[2], np.uint8)[: len(batch)]
        length = pc.binary_length(batch.column("data")).to_numpy().astype(np.int64)
        relids = batch.column("relid").fill_null(0).to_numpy()
        self.messages += len(batch)
        self.bytes += int(length.sum())
        self.logical_messages += int((kinds == ord("M")).sum())
        for relid in np.unique(relids[relids != 0]).tolist():
            of_table = relids == relid
            self._sizes[relid] += int(length[of_table].sum())
            for kind in _CHANGES:
                self._counts[relid, kind] += int((kinds[of_table] == ord(kind)).sum())

    def _error(self, lsn: int, what: str) -> DecodeError:
        return DecodeError(
            f"window {self.ordinal} {self.window}, commit LSN {Lsn(max(lsn, 0))}: {what}",
            hint="the slot has not moved; use plugin: pgoutput where a publication can be made",
        )


def _two_phase(line: bytes) -> TwoPhaseLine:
    end = read_line(line)
    if not isinstance(end, TwoPhaseLine):
        raise FieldError("not a line of two-phase commit")
    return end


def _body(lines: LineBatch, placed: _Placed, ordinal: Ints) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.arange(len(placed.line) + 1, dtype=np.int32))
    letters = pa.py_buffer(np.ascontiguousarray(placed.kind))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ordinal[placed.line]),
            pa.Array.from_buffers(pa.string(), len(placed.line), [None, offsets, letters]),
            pa.array(placed.relid, mask=placed.relid == 0),
            pa.array(placed.version, mask=(placed.version < 0) | (placed.kind == ord("T"))),
            lines.lines.take(pa.array(placed.line)),
        ],
        schema=LINE_SPOOL_SCHEMA,
    )
