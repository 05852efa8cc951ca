"""Where the change log has changes of the rows that are to be forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log.retention import changes_of
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.configuration import Lake
from spark_jobs.errors import PreconditionError, SchemaChangeError
from spark_jobs.forget.row_keys import HeldColumn, RowKeys, key_text, matches
from spark_jobs.logged_changes.change_rows import AFTER, BEFORE
from spark_jobs.logged_changes.descriptions import counted
from spark_jobs.logged_changes.logged_table import LoggedTable, TableUntil
from spark_jobs.logged_changes.plan import Plan
from spark_jobs.options.column_options import ColumnOptions
from spark_jobs.replay.landed_windows import LandedWindows
from spark_jobs.schema.mode_columns import CHANGE, COMMIT_LSN, ORDINAL


@dataclass(frozen=True)
class Traces:
    """Changes of these rows: those of relation ``relid`` in the windows ``first`` to ``last``, which are of one
    chapter, at these ``positions``: commit LSN and ordinal."""

    relid: int
    first: int
    last: int
    positions: frozenset[tuple[int, int]]

    def among(self, rows: pa.RecordBatch) -> pa.Array:
        """For each of these rows of the change log, whether it is one of the changes."""
        window = rows.column("window")
        within = pc.and_(pc.greater_equal(window, self.first), pc.less_equal(window, self.last))
        candidates = pc.fill_null(pc.and_(within, changes_of([self.relid], rows)), False)
        lsns, ordinals = (rows.column(name).filter(candidates).to_pylist() for name in ("commit_lsn", "ordinal"))
        hits = [position in self.positions for position in zip(lsns, ordinals, strict=True)]
        return pc.replace_with_mask(candidates, candidates, pa.array(hits, pa.bool_()))


@dataclass(frozen=True)
class LoggedTraces:
    """``relids``: the relations that have had the table's name. ``oldest``: the first window that the log has."""

    relids: tuple[int, ...]
    oldest: int
    traces: tuple[Traces, ...]

    @property
    def count(self) -> int:
        return sum(len(each.positions) for each in self.traces)

    def among(self, rows: pa.RecordBatch) -> pa.Array:
        """For each row of the change log, whether it is a change of one of the rows; or, where nothing describes it any
        more, whether it may be: the change of any row of the table before the log's first window."""
        hits = pc.and_(pc.less(rows.column("window"), self.oldest), changes_of(self.relids, rows))
        for each in self.traces:
            hits = pc.or_(hits, each.among(rows))
        return pc.fill_null(hits, False)


def logged_traces(lake: Lake, keys: RowKeys, upto: int) -> LoggedTraces:
    """The changes up to window ``upto``, in every chapter, whatever the table's columns were. Raises PreconditionError
    if a row had another key at a time, which is not to be forgotten; SchemaChangeError and DecodeError for windows that
    cannot be decoded."""
    chapters = LandedWindows.of_each_chapter(lake)
    markers = [marker for landed in chapters for marker in landed.markers]
    named = {counts.relid for marker in markers for counts in marker.counts_of(None, keys.facts.name)}
    relids = tuple(sorted(named | {keys.facts.relid}))
    all_traces = [
        traces
        for landed in chapters
        for relid in relids
        for traces in _traces(lake, keys, relid, [each for each in landed.markers if each.ordinal <= upto])
    ]
    return LoggedTraces(relids, markers[0].ordinal, tuple(all_traces))


def _traces(lake: Lake, keys: RowKeys, relid: int, markers: Sequence[WindowMarker]) -> Iterator[Traces]:
    """In windows of one chapter. Where the table changed so that one schema cannot show all of them, in half as many at
    a time."""
    changed = [marker for marker in markers if counted(marker, relid)]
    if not changed:
        return
    try:
        traces = list(_decoded(lake, keys, relid, markers))
    except SchemaChangeError:
        if len(markers) == 1:
            raise
        half = len(markers) // 2
        traces = [*_traces(lake, keys, relid, markers[:half]), *_traces(lake, keys, relid, markers[half:])]
    yield from traces


def _decoded(lake: Lake, keys: RowKeys, relid: int, markers: Sequence[WindowMarker]) -> Iterator[Traces]:
    # of a key that the lake's type cannot hold, no row can be in the lake
    table = LoggedTable(lake, keys.name, ColumnOptions(policy="null"))
    until = TableUntil(table, markers, relid)
    columns = _key_columns(keys, until)
    values = keys.values(list(columns.values()))
    kept = {column.name for column in columns.values()}
    shape = replace(until.shape, columns=tuple(each for each in until.shape.columns if each.name in kept))
    for piece in Plan(table, shape, until.facts.mask, markers).pieces():
        positions: set[tuple[int, int]] = set()
        for rows in piece.batches():
            is_trace = _is_trace(keys, rows, columns, values)
            lsns, ordinals = (rows.column(each.name).filter(is_trace).to_pylist() for each in (COMMIT_LSN, ORDINAL))
            positions.update(zip(lsns, ordinals, strict=True))
        if positions:
            yield Traces(relid, piece.first, piece.last, frozenset(positions))


def _key_columns(keys: RowKeys, until: TableUntil) -> Mapping[str, HeldColumn]:
    """The key's columns as these windows have them, by their names now: a column is known by its number, in a table
    that was re-created by its name."""
    facts, same = {column.attnum: column for column in until.facts.columns}, until.relid == keys.facts.relid
    columns: dict[str, HeldColumn] = {}
    for name, attnum in zip(keys.names, keys.attnums, strict=True):
        known = (each for each in until.shape.columns if (each.attnum == attnum if same else each.name == name))
        column = next(known, None)
        if column is None:
            raise SchemaChangeError(f"{keys.name} had no column {name} before {until.markers[-1].window.hi}")
        masked = column.attnum in facts and facts[column.attnum].masked
        if masked and keys.mask is not None and not until.facts.mask.startswith(keys.mask.salt_word):
            raise SchemaChangeError(f"{keys.name} was masked with another salt before {until.markers[-1].window.hi}")
        columns[name] = HeldColumn(column.name, column.lake_type, masked)
    return columns


def _is_trace(keys: RowKeys, rows: pa.RecordBatch, columns: Mapping[str, HeldColumn], values: pa.Table) -> pa.Array:
    before, after = (_side(rows, name, columns) for name in (BEFORE, AFTER))
    is_before, is_after = matches(before, values), matches(after, values)
    first = columns[keys.names[0]].name
    if pc.any(pc.and_(pc.equal(rows.column(CHANGE.name), "delete"), pc.is_null(before[first]))).as_py():
        raise SchemaChangeError(
            f"deletes of {keys.name} were sent without its key", hint="wait for retention.change_log"
        )
    has_both = pc.and_(pc.is_valid(before[first]), pc.is_valid(after[first]))
    moved = pc.index(pc.and_(has_both, pc.xor(is_before, is_after)), True).as_py()
    if moved >= 0:
        side = after if is_before[moved].as_py() else before
        raise _other_key(keys, {name: (side[column.name][moved].as_py(), column) for name, column in columns.items()})
    return pc.or_(is_before, is_after)


def _side(rows: pa.RecordBatch, name: str, columns: Mapping[str, HeldColumn]) -> Mapping[str, pa.Array]:
    return {column.name: pc.struct_field(rows.column(name), column.name) for column in columns.values()}


def _other_key(keys: RowKeys, other: Mapping[str, tuple[object, HeldColumn]]) -> PreconditionError:
    what = (
        f"a row of {keys.name} had two keys one after the other, and only one is to be forgotten; nothing was changed"
    )
    if any(column.masked for _, column in other.values()):
        return PreconditionError(what, hint="add a --key for the other one; its columns are masked, so it is not shown")
    text = key_text(
        {name: value.hex() if isinstance(value, bytes) else str(value) for name, (value, _) in other.items()}
    )
    return PreconditionError(what, hint=f"add {text}")
