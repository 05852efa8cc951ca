"""The table that another tool has loaded, read as values of ours. It is never written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow import fs

from spark_jobs.configuration import Adopted
from spark_jobs.delta.files import table_filesystem
from spark_jobs.delta.table import is_ambiguous, table_errors, table_of_others
from spark_jobs.delta.transaction_log import TransactionLog
from spark_jobs.errors import LakeError, PreconditionError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.net_columns import value
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.snapshot.adopted.row_hash import is_hashed
from spark_jobs.snapshot.range_read import Batches
from spark_jobs.storage import Location
from spark_jobs.writers.with_arrow.opened_table import FEATURES
from spark_jobs.writers.with_arrow.rows_of_table import every_row

_ROWS = 1 << 16


_HINT = "correct adopt in the table's entry, or take it out: then the table is read from the source"


def not_adopted(name: QualifiedName, path: str, why: str) -> PreconditionError:
    return PreconditionError(f"{name} cannot adopt the rows of {path}: {why}", hint=_HINT)


def _read_errors(name: QualifiedName, path: str) -> AbstractContextManager[None]:
    return table_errors(f"{name} cannot adopt the rows of {path}", hint=_HINT)


@dataclass(frozen=True)
class CopiedTable:
    """The rows at ``path`` as of ``version``, for the table ``shape``, whose columns are ``theirs`` there."""

    shape: TableShape
    path: Location
    version: str
    theirs: tuple[str, ...]

    @classmethod
    def of(cls, adopted: Adopted, shape: TableShape, lake: Location, version: str = "") -> CopiedTable:
        """``version``: of an earlier call, empty for the newest. Raises PreconditionError if its rows cannot become
        ours, and LakeError if it cannot be read, or if it has no such version any more."""
        name, path = shape.name, Location(adopted.path, lake.storage)
        if f"{path}/".startswith(f"{lake}/"):
            raise not_adopted(name, path, "it lies in lake.path, which holds our own tables")
        opened = _opened(name, path, version)
        fields = {field.name.casefold(): field for field in opened.schema}
        theirs: list[str] = []
        for column in shape.columns:
            their_name = dict(adopted.columns).get(column.name, column.name)
            if (field := fields.get(their_name.casefold())) is None:
                raise not_adopted(name, path, f"it has no column {their_name}")
            if not is_hashed(column.lake_type):
                raise not_adopted(name, path, f"another type is chosen for column {column.name}")
            if not _is_alike(field.type, column.lake_type):
                kind = f"its column {field.name} is {field.type}"
                raise not_adopted(name, path, f"{kind}, and {column.name} {column.lake_type.sql}")
            theirs.append(field.name)
        return cls(shape, path, opened.version, tuple(theirs))

    def rows(self) -> Batches:
        """All rows, in no order, in columns named by ``net_columns.value``. Raises LakeError, and PreconditionError for
        a value that our type does not hold."""
        names = dict.fromkeys(self.theirs)
        for batch in _opened(self.shape.name, self.path, self.version).batches(list(names)):
            for first in range(0, batch.num_rows, _ROWS):
                yield self._as_ours(batch.slice(first, _ROWS))

    def _as_ours(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = zip(self.shape.columns, self.theirs, strict=True)
        arrays = [self._cast(batch.column(theirs), column, theirs) for column, theirs in columns]
        return pa.RecordBatch.from_arrays(arrays, [value(place) for place in range(len(arrays))])

    def _cast(self, values: pa.Array, column: LakeColumn, theirs: str) -> pa.Array:
        to = column.lake_type
        try:  # a time that loses digits is not equal to that of the source
            return values.cast(to.arrow, safe=not pa.types.is_timestamp(values.type))
        except pa.ArrowException:
            why = f"its column {theirs} has a value that {column.name}, {to.sql}, does not hold"
            raise not_adopted(self.shape.name, self.path, why) from None


class _Opened(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]: ...


def _opened(name: QualifiedName, path: Location, version: str) -> _Opened:
    with _read_errors(name, path):
        log = TransactionLog.open(path)
    if log is None:
        return _ParquetFiles.at(name, path, version)
    if is_ambiguous(path):
        raise _left_to_spark(name, path, "the % in its path")
    with _read_errors(name, path):
        table = table_of_others(path, int(version) if version else log.version)
        unknown = set(table.protocol().reader_features or ()) - FEATURES
    if unknown:
        raise _left_to_spark(name, path, ", ".join(sorted(unknown)))
    return _DeltaVersion(name, path, table)


def _left_to_spark(name: QualifiedName, path: Location, what: str) -> LakeError:
    return LakeError(
        f"{name} cannot adopt the rows of {path}: only Spark can read it, because of {what}",
        hint="have Spark write it to another folder, and name that in adopt",
    )


@dataclass(frozen=True)
class _DeltaVersion:
    name: QualifiedName
    path: Location
    table: DeltaTable

    @property
    def version(self) -> str:
        return str(self.table.version())

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.table.schema().to_arrow())

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _read_errors(self.name, self.path):
            yield from every_row(self.table, names=names)


@dataclass(frozen=True)
class _ParquetFiles:
    """The Parquet files in a folder and its subfolders; these may be named for values, as ``day=2026-01-31``."""

    name: QualifiedName
    path: Location
    dataset: Any
    version: str

    @classmethod
    def at(cls, name: QualifiedName, path: Location, version: str) -> _ParquetFiles:
        filesystem = table_filesystem(path)
        layout = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        with _read_errors(name, path):
            below = filesystem.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
            files = sorted((file.path, file.size, file.mtime_ns) for file in below if _holds_rows(file.path))
            if not files:
                raise not_adopted(name, path, "there is neither a Delta table nor a Parquet file")
            digest = hashlib.sha256(repr(files).encode()).hexdigest()
            if version and digest != version:
                raise LakeError(f"{path} has other files than before", hint="run it again")
            paths = [path for path, _, _ in files]
            dataset = ds.dataset(paths, filesystem=filesystem, format=layout, partitioning="hive")
        return cls(name, path, dataset, digest)

    @property
    def schema(self) -> pa.Schema:
        return self.dataset.schema

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _read_errors(self.name, self.path):
            yield from self.dataset.to_batches(columns=list(names), batch_readahead=4, fragment_readahead=1)


def _holds_rows(file: str) -> bool:
    """By its path: names that begin with an underscore or a dot are those of files about files."""
    return file.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in file.split("/"))


def _is_alike(theirs: pa.DataType, to: LakeType) -> bool:
    """Whether values are cast from one type to the other without a change of what they are."""
    stored = theirs.value_type if pa.types.is_dictionary(theirs) else theirs
    return pa.types.is_null(stored) or any(is_one(stored) for is_one in _ALIKE.get(to.kind, (pa.types.is_integer,)))


_ALIKE = {
    LakeKind.BOOLEAN: (pa.types.is_boolean,),
    LakeKind.FLOAT: (pa.types.is_floating,),
    LakeKind.DOUBLE: (pa.types.is_floating,),
    LakeKind.DECIMAL: (pa.types.is_decimal, pa.types.is_integer),
    LakeKind.DATE: (pa.types.is_date,),
    LakeKind.TIMESTAMP: (pa.types.is_timestamp,),
    LakeKind.TIMESTAMP_NTZ: (pa.types.is_timestamp,),
    LakeKind.BINARY: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    LakeKind.STRING: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
}
