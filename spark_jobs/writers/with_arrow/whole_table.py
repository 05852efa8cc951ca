"""All rows of a table replaced without Spark: data files that this process has written become the table, in one commit.

A table that does not exist is created, just as Spark would create it. One that exists keeps its properties, and gets
the columns in the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal
from uuid import uuid4

import pyarrow as pa
from deltalake import Schema
from deltalake.transaction import AddAction

from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.data_files import DataFiles, Layout
from spark_jobs.delta.own_commit import create_table
from spark_jobs.delta.table import is_ambiguous, overtaken, table_errors
from spark_jobs.delta.transaction_log import TransactionLog, note_version
from spark_jobs.options.table_mode import Mode
from spark_jobs.options.write_limits import WriteLimits
from spark_jobs.schema.annotations import TableAnnotations
from spark_jobs.schema.column_changes import DeltaColumn, counterparts
from spark_jobs.schema.lake_types import LakeKind
from spark_jobs.schema.misfits import NO_MISFITS, Misfits
from spark_jobs.schema.table_shape import LakeColumn, TableShape, of_source
from spark_jobs.storage import Location
from spark_jobs.writers.delta_fields import (
    ATTNUM,
    COMMENTED,
    MAX_ID,
    annotated_fields,
    delta_fields,
    said_in,
    schema_string,
)
from spark_jobs.writers.table_commit import Provenance, commit_numbered
from spark_jobs.writers.table_features import COLUMN_MAPPING, features_of_columns, of_new_tables
from spark_jobs.writers.with_arrow.file_layout import file_layout, written_columns
from spark_jobs.writers.with_arrow.opened_table import FEATURES, OpenedTable, file_bytes, opened_table
from spark_jobs.writers.with_arrow.rows_of_table import readable_table, rows_of_table_within
from spark_jobs.writers.with_arrow.table_metadata import MetadataChange, commit_metadata, said_by_source

STEM = "snapshot"  # of the names of data files: see leftovers

# to which types Arrow and Spark cast all values of a type alike
_CASTS = {
    "smallint": ("int", "bigint", "string"),
    "int": ("bigint", "string"),
    "bigint": ("string",),
    "float": ("double",),
}


@dataclass(frozen=True)
class WrittenFiles:
    """Data files that are not yet part of a table, and their number of rows. ``misfits``: of these rows."""

    actions: tuple[AddAction, ...]
    rows: int
    misfits: Misfits = NO_MISFITS


@dataclass(frozen=True)
class WholeTable:
    """The table at ``path``, with ``columns`` of the source and those of ``mode``. ``physical`` and ``ids``: the names
    and numbers of all of them in the data files, in the same order; without column mapping they have their own names,
    and no numbers. ``before``: the table as it is now, None if there is none. ``keeps``: which of its rows it has
    after the commit: all, and those of the files; or some, which are in the files too, so that nobody may commit in
    between; or none. ``by_number``: see ``counterparts``. ``said``: what the source says about the table; None: as
    before."""

    path: Location
    columns: tuple[LakeColumn, ...]
    mode: Mode
    physical: tuple[str, ...]
    ids: tuple[int | None, ...]
    before: OpenedTable | None
    keeps: Literal["all", "some", "none"] = "none"
    by_number: bool = True
    said: TableAnnotations | None = None

    @classmethod
    def of(cls, path: Location, shape: TableShape, provenance: Provenance) -> WholeTable | None:
        """``provenance``: that of the commit. None if Spark must write the table: for its types, its path, or what is
        there. Raises LakeError."""
        columns, mode, annotations = shape.columns, provenance.generation.mode, shape.annotations
        if is_ambiguous(path) or not columns or any(column.lake_type.kind is LakeKind.VARIANT for column in columns):
            return None
        with table_errors(f"{path} cannot be read"):
            log = TransactionLog.open(path)
            if log is None:
                return replace(cls._new(path, columns, mode), said=annotations)
            number = log.transaction_version(provenance.txn_app_id) or 0
        opened = opened_table(path, log.version)
        # a number that does not fit: the table has forgotten it, see table_state
        if number != provenance.commits - 1 or opened is None or not is_ours(opened):
            return None
        if not opened.is_mapped and COLUMN_MAPPING in features_of_columns(columns):
            return None
        return cls(path, columns, mode, *_in_files(opened, columns, mode), opened, said=annotations)

    @classmethod
    def _new(cls, path: Location, columns: tuple[LakeColumn, ...], mode: Mode) -> WholeTable:
        names = written_columns(columns, mode).names
        if COLUMN_MAPPING not in features_of_columns(columns):
            return cls(path, columns, mode, tuple(names), (None,) * len(names), None)
        unique = tuple(f"col-{uuid4()}" for _ in names)
        return cls(path, columns, mode, unique, tuple(range(1, len(names) + 1)), None)

    @property
    def is_new(self) -> bool:
        return self.before is None

    def for_files(self, physical: tuple[str, ...], ids: tuple[int | None, ...]) -> WholeTable | None:
        """The same table, for files that were written with these names and numbers of the columns. None if it has
        columns that are not these: somebody has replaced it."""
        if self.before is None:
            return replace(self, physical=physical, ids=ids)
        known, greatest = {*self.before.physical.values()}, self.before.max_id
        for own, own_id, name, number in zip(self.physical, self.ids, physical, ids, strict=True):
            if (own, own_id) != (name, number) and ({own, name} & known or own_id is None or (number or 0) <= greatest):
                return None
        return replace(self, physical=physical, ids=ids)

    @property
    def has_other_columns(self) -> bool:
        """Whether the table that is there gets other columns."""
        if self.before is None:
            return False
        columns = tuple(map(DeltaColumn.of, of_source(self.columns)))
        has_names = {*self.before.physical} == {*written_columns(self.columns, self.mode).names}
        return self.before.columns != columns or not has_names

    def _schema(self, opened: OpenedTable) -> Schema:
        """The schema of the table, which is ``opened``, after the commit."""
        if not self.has_other_columns:
            return opened.schema
        fields = delta_fields(self.columns, self.mode, self.physical, self.ids)
        metadata = {field["metadata"].get(ATTNUM): field["metadata"] for field in opened.fields}
        for field in fields:
            field["metadata"] |= said_in(metadata.get(field["metadata"].get(ATTNUM), {}))
        return Schema.from_json(schema_string(annotated_fields(fields, self.said) if self.said else fields))

    @property
    def layout(self) -> Layout:
        """How to write the data files: the values of the columns, under their physical names."""
        return file_layout(written_columns(self.columns, self.mode), self.physical, self.ids, stem=STEM)

    def all_rows(self, limits: WriteLimits) -> pa.Table | None:
        """All rows that the table has now, in its new columns: null in those that are new. None if they are too many to
        be written again here, or if Spark has to convert them. Raises LakeError."""
        assert self.before is not None
        table = readable_table(self.path, self.before.opened.log.version)
        if table is None or file_bytes(pa.table(table.get_add_actions(flatten=True))) > limits.small_bytes:
            return None
        rows = rows_of_table_within(table, limits.in_memory_bytes)
        known = counterparts(self.before.columns, of_source(self.columns), by_number=self.by_number)
        return None if rows is None else _in_columns(rows, known, self.columns, self.mode)

    def written(self, rows: pa.Table) -> WrittenFiles:
        """``rows`` of the table in data files that no version names yet. Raises LakeError."""
        files = DataFiles(self.path, self.layout)
        files.write_all(rows.to_batches())
        return WrittenFiles(tuple(files.actions), rows.num_rows)

    def commit(self, files: Sequence[AddAction], rows: int, provenance: Provenance) -> int:
        """Make the table hold exactly the ``rows`` of these files, or these too. Returns the Delta version.

        Raises OvertakenError if another writer has committed since the table's state was read, and LakeError.
        """
        if self.before is not None:
            return self._replaced(files, provenance, self.before)
        transaction = Transaction(provenance.txn_app_id, provenance.commits)
        features, settings = features_of_columns(self.columns), of_new_tables(self.path)
        if comment := self.said.comment if self.said is not None else "":
            settings |= {COMMENTED: "true"}
        if COLUMN_MAPPING in features:
            settings |= {COLUMN_MAPPING.key: COLUMN_MAPPING.value}
            settings |= {MAX_ID: str(len(self.physical))}
        if not create_table(
            self.path,
            delta_fields(self.columns, self.mode, self.physical, self.ids, self.said),
            settings,
            files,
            transaction,
            features=[feature.name for feature in features],
            user_metadata=provenance.user_metadata(),
            rows=rows,
            description=comment,
        ):
            raise overtaken(self.path)
        note_version(self.path, 0)
        return 0

    def _replaced(self, files: Sequence[AddAction], provenance: Provenance, before: OpenedTable) -> int:
        # opened only now: what others have committed while the files were written is replaced too, unless it is ours
        opened = self._opened_again()
        if not opened.has_columns_of(before):
            raise overtaken(self.path)
        if self.keeps == "some" and opened.opened.log.version != before.opened.log.version:
            raise overtaken(self.path)
        if change := self._needed(opened):
            commit_metadata(opened, change)
            opened = self._opened_again()
        whole = None if self.keeps == "all" else self._schema(opened)
        version = commit_numbered(opened.opened, provenance, files, whole)
        if version is None:
            raise overtaken(self.path)
        return version

    def _opened_again(self) -> OpenedTable:
        with table_errors(f"{self.path} cannot be read"):
            log = TransactionLog.open(self.path)
        opened = None if log is None else opened_table(self.path, log.version)
        if opened is None or not is_ours(opened):
            raise overtaken(self.path)
        return opened

    def _needed(self, opened: OpenedTable) -> MetadataChange:
        """What the table has to have before it gets the columns."""
        features = frozenset(feature.name for feature in features_of_columns(self.columns)) - opened.features
        most = max((number for number in self.ids if number is not None), default=0)
        properties = {MAX_ID: str(most)} if most > opened.max_id else {}
        change = MetadataChange() if self.said is None else said_by_source(opened, self.said)
        return replace(change, features=features, properties={**change.properties, **properties})


def is_ours(opened: OpenedTable) -> bool:
    """Whether the table has only columns and features that we have made."""
    return opened.features <= FEATURES and all(column.attnum is not None for column in opened.columns)


def _in_columns(
    rows: pa.Table, known: Mapping[int, DeltaColumn], columns: Sequence[LakeColumn], mode: Mode
) -> pa.Table | None:
    """The rows of a table in other columns, of which it has those ``known``. None if Spark has to convert a value."""
    schema = written_columns(columns, mode)
    arrays, own = [], schema.names[len(of_source(columns)) :]
    if not {*own} <= {*rows.column_names}:
        return None
    for column in of_source(columns):
        before = known.get(column.attnum)
        if before is None:
            arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, column.lake_type.arrow)]))
        elif before.is_widened_in(column) or column.lake_type.sql in (before.sql, *_CASTS.get(before.sql, ())):
            arrays.append(rows.column(before.name).cast(column.lake_type.arrow))
        else:
            return None
    return pa.table([*arrays, *map(rows.column, own)], schema.names).cast(schema)


def _in_files(
    opened: OpenedTable, columns: Sequence[LakeColumn], mode: Mode
) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
    """The names and numbers of the columns: those that the table has keep theirs."""
    names = written_columns(columns, mode).names
    if not opened.is_mapped:
        return tuple(names), (None,) * len(names)
    old_names = {column.attnum: column.name for column in opened.columns}
    own = {name for name in opened.physical if name not in old_names.values()}
    known = [old_names.get(column.attnum) for column in of_source(columns)]
    known += [name if name in own else None for name in names[len(known) :]]
    free = count(opened.max_id + 1)
    physical = tuple(f"col-{uuid4()}" if name is None else opened.physical[name] for name in known)
    return physical, tuple(next(free) if name is None else opened.ids[name] for name in known)
