"""A Delta table as its transaction log describes it, without Spark: its columns, and how large its files are."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.table import ProtocolVersions

from spark_jobs.delta.table import is_ambiguous, open_table, table_errors
from spark_jobs.delta.written_tables import TableToWrite, open_to_write
from spark_jobs.errors import LakeError
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.net_columns import NetColumns
from spark_jobs.schema.table_shape import TableShape
from spark_jobs.storage import Location
from spark_jobs.writers.delta_fields import COLUMN_ID, MAX_ID, PHYSICAL, known_fields, source_columns
from spark_jobs.writers.merge_sql import KeyRange, ranged_key
from spark_jobs.writers.table_features import DELETION_VECTORS
from spark_jobs.writers.with_arrow.file_layout import written_columns
from spark_jobs.writers.write_choice import TableFacts

_log = logging.getLogger(__name__)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._/-]+")
ELSEWHERE = "^/|^[A-Za-z][A-Za-z0-9+.-]*:/"  # Hadoop's paths have one slash, as in file:/lake
# these promise readers what happened to single rows
_ROW_BY_ROW = ("delta.enableChangeDataFeed", "delta.enableRowTracking")
# those that we give tables, and those that every table has
FEATURES = {"deletionVectors", "columnMapping", "timestampNtz", "appendOnly", "invariants"}
# https://github.com/delta-io/delta/blob/master/PROTOCOL.md#supported-features
_OF_VERSION = (
    (2, ("appendOnly", "invariants")),
    (3, ("checkConstraints",)),
    (4, ("changeDataFeed", "generatedColumns")),
    (5, ("columnMapping",)),
    (6, ("identityColumns",)),
)


@dataclass(frozen=True)
class OpenedTable:
    """A table that ``deltalake`` has opened at one version. ``fields``: all of its schema. ``columns``: those that the
    source has too; ``physical``: the name in the data files of each column, those of the mode included, and ``ids``:
    its number there, None if the table has none; ``features``: the Delta features that the table uses."""

    opened: TableToWrite
    fields: Sequence[Mapping[str, Any]]
    columns: tuple[DeltaColumn, ...]
    physical: Mapping[str, str]
    ids: Mapping[str, int | None]
    features: frozenset[str]

    @property
    def path(self) -> Location:
        return self.opened.path

    @property
    def table(self) -> DeltaTable:
        return self.opened.table

    @property
    def schema(self) -> Schema:
        return self.table.schema()

    @property
    def is_mapped(self) -> bool:
        """Whether its columns may have other names in the data files."""
        return any(number is not None for number in self.ids.values())

    @property
    def max_id(self) -> int:
        """The greatest number that a column of it has had in data files; 0 if none has."""
        return int(self.table.metadata().configuration.get(MAX_ID, 0))

    def has_columns_of(self, other: OpenedTable) -> bool:
        """Whether both have the same columns, under the same names in the data files."""
        return (self.columns, self.physical, self.ids) == (other.columns, other.physical, other.ids)

    def in_files(self, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
        """The names and numbers in the data files of the columns with these ``names``."""
        return tuple(self.physical[name] for name in names), tuple(self.ids[name] for name in names)

    @property
    def files(self) -> pa.Table:
        """See ``TableToWrite``."""
        return self.opened.files

    def can_be_removed(self, files: pa.Table) -> bool:
        """Whether a commit through ``table`` can remove just these files: it names no deletion vector, and does not
        write special characters as Spark does. Else the file would stay. All vectors are read for it. Raises
        LakeError."""
        names = files.column("path").to_pylist()
        if DELETION_VECTORS.name not in self.features or not names:
            return all(map(_PLAIN_NAME.fullmatch, names))
        with table_errors(f"{self.path} cannot be read"):
            read = pa.RecordBatchReader.from_stream(self.table.deletion_vectors())
            marked = {uri.rpartition("/")[2] for batch in read for uri in batch.column("filepath").to_pylist()}
        return all(_PLAIN_NAME.fullmatch(name) and name.rpartition("/")[2] not in marked for name in names)

    def files_in_range(self, shape: TableShape, key_range: KeyRange | None) -> pa.Table:
        """Those of the files that may hold a row in the range, or any row without one. A file without statistics may
        hold any row."""
        files, place = self.files, ranged_key(shape)
        if place is None or key_range is None:
            return files
        physical = self.physical[shape.columns[place].name]
        least, greatest = f"min.{physical}", f"max.{physical}"
        if not {least, greatest} <= set(files.column_names):
            return files
        beyond = pc.or_(pc.greater(files.column(least), key_range.high), pc.less(files.column(greatest), key_range.low))
        return files.filter(pc.invert(pc.fill_null(beyond, False)))


def table_to_read(path: Location, version: int | None = None) -> DeltaTable | None:
    """The table at ``path``, at ``version`` or its newest one. None if ``deltalake`` cannot open it, as one with type
    widening, which it does not know; or if it is missing or cannot be read: then Spark reports what is wrong."""
    if is_ambiguous(path):
        return None
    try:
        return open_table(path, path, version=version)
    except LakeError as error:
        _log.info("%s is left to Spark: %s", path, error)
        return None


def opened_table(path: Location, version: int | None = None) -> OpenedTable | None:
    """The newest version of the table at ``path``; or ``version``, which its state was just read from, or a newer one.
    None if ``deltalake`` cannot open it, or may give a column another type than Spark does.

    Also None if it is missing or cannot be read: then Spark reports what is wrong.
    """
    if is_ambiguous(path):
        return None
    try:
        opened = open_to_write(path, path, newest=version)
        if opened is None:
            return None
        table = opened.table
        with table_errors(f"{path} cannot be read"):
            protocol, fields = table.protocol(), known_fields(table)
            partitioned_by = table.metadata().partition_columns
    except LakeError as error:
        _log.info("%s is left to Spark: %s", path, error)
        return None
    if fields is None or partitioned_by:  # by somebody else: our data files have no partition values
        return None
    physical = {field["name"]: field["metadata"].get(PHYSICAL, field["name"]) for field in fields}
    ids = {field["name"]: field["metadata"].get(COLUMN_ID) for field in fields}
    return OpenedTable(opened, fields, source_columns(fields), physical, ids, features_of_protocol(protocol))


def features_of_protocol(protocol: ProtocolVersions) -> frozenset[str]:
    """Those of a protocol that does not name them are the ones that its writer version stands for."""
    if protocol.writer_features is None:
        implied = (names for version, names in _OF_VERSION if version <= protocol.min_writer_version)
        return frozenset(chain.from_iterable(implied))
    return frozenset((*protocol.writer_features, *(protocol.reader_features or ())))


def facts_of(
    opened: OpenedTable, columns: NetColumns, key_range: KeyRange | None, *, replaces: bool = True
) -> TableFacts:
    """``columns``: those of the net change. ``key_range``: that of the touched rows; None if any row may be touched.
    ``replaces``: whether touched files may be replaced through ``opened``. Raises LakeError."""
    touched = opened.files_in_range(columns.shape, key_range)
    facts = _facts(opened.table, opened.files, touched, columns, is_known=opened.features <= FEATURES)
    return replace(facts, only_as_a_whole=replaces and not opened.can_be_removed(touched))


def facts_of_unopened(path: Location, columns: NetColumns) -> TableFacts | None:
    """Those of a table that is left to Spark; None if ``deltalake`` cannot open it, or there is none. ``columns``: see
    ``facts_of``."""
    table = table_to_read(path)
    if table is None:
        return None
    files = pa.table(table.get_add_actions(flatten=True))
    return _facts(table, files, files, columns, is_known=False)


def _facts(table: DeltaTable, files: pa.Table, touched: pa.Table, columns: NetColumns, *, is_known: bool) -> TableFacts:
    own = {*written_columns(columns.shape.columns, columns.mode).names}
    has_others = own != {field.name for field in table.schema().fields}
    is_followed = any(table.metadata().configuration.get(name) == "true" for name in _ROW_BY_ROW)
    return TableFacts(
        files.num_rows,
        file_bytes(files),
        _row_count(files),
        file_bytes(touched),
        _row_count(touched),
        is_known and not has_others,
        bool(pc.any(pc.match_substring_regex(files.column("path"), ELSEWHERE)).as_py()),
        is_followed or has_others,
    )


def file_bytes(files: pa.Table) -> int:
    """The size of these files."""
    return pc.sum(files.column("size_bytes")).as_py() or 0


def _row_count(files: pa.Table) -> int | None:
    """The rows in these files, deleted ones included; None if not known, or without files."""
    counts = files.column("num_records")
    return None if counts.null_count else pc.sum(counts).as_py()
