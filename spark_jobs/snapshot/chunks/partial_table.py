"""``partial: true`` shows the chunks that are read so far, as a Delta table of their own, until the table is written.

It names the chunks' files where they lie, below its own folder, so no row is written for it. The rows are as they were
read, each at a moment of its own: one that was changed meanwhile may be missing, old, or in it twice. So nothing of
ours reads it, it has another place than the table and says what it is, and it ends before the table is written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from deltalake.transaction import AddAction

from spark_jobs.delta.checkpoints import write_checkpoint
from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.files import files_below, remove_empty_folders
from spark_jobs.delta.listed_table import ListedTable
from spark_jobs.delta.own_commit import create_table
from spark_jobs.delta.whole_files import delete_files
from spark_jobs.errors import OvertakenError
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.table_shape import LakeColumn
from spark_jobs.snapshot.chunks.staged_files import StagedFiles
from spark_jobs.storage import Location
from spark_jobs.writers.delta_fields import COLUMN_ID, MAX_ID, Field, delta_fields, schema_string
from spark_jobs.writers.table_features import COLUMN_MAPPING, MAPPED_NAMES, features_of_columns
from spark_jobs.writers.with_arrow.leftovers import PARTIAL

_SECONDS = 10.0  # between two commits: nobody needs one for each chunk
_CHECKPOINT_EVERY = 10  # commits
_SAYS = (
    "Not table {0}, but what a snapshot of it that is not finished has read so far, each row at a moment of its own: a "
    "row that was changed since the snapshot began may be missing, old, or in here twice. Removed when the table is "
    "written."
)
_LOG = "_delta_log"


@dataclass
class PartialTable:
    """The table at ``path``, of source table ``name``. ``_waiting``: files that it does not show yet."""

    name: QualifiedName
    path: Location
    columns: tuple[LakeColumn, ...]
    fields: list[Field]
    _table: ListedTable | None = None
    _waiting: list[AddAction] = field(default_factory=list)
    _next: float = 0.0

    @classmethod
    def of(cls, name: QualifiedName, staged: StagedFiles) -> PartialTable:
        columns, files = tuple(map(_stored, staged.shape.columns)), staged.layout.schema
        ids: list[int | None] = [None] * len(columns)
        if files.names != [column.name for column in columns]:
            ids = [_id(each.metadata, number) for number, each in enumerate(files, 1)]
        return cls(name, staged.folder, columns, delta_fields(columns, "mirror", files.names, ids))

    def begin(self, files: Iterable[AddAction]) -> None:
        """Show exactly these ``files``, as far as they lie below ``path``. Raises LakeError."""
        wanted = {file.path: file for file in map(_below, files) if file is not None}
        self._open()
        if self._table is not None and not (
            self._table.files.keys() <= wanted.keys()
            and self._table.metadata["schemaString"] == schema_string(self.fields)
        ):
            self._table = None
        if self._table is None:
            remove_partial(self.path)
        shown = self._table.files if self._table is not None else {}
        self._waiting = [file for name, file in wanted.items() if name not in shown]
        self.commit()

    def add(self, files: Iterable[AddAction]) -> None:
        """Show these ``files``, too, in a moment. Raises LakeError."""
        self._waiting += filter(None, map(_below, files))
        if time.monotonic() >= self._next:
            self.commit()

    def commit(self) -> None:
        """Show all files that were added. Raises LakeError."""
        if not self._waiting:
            return
        self._next = time.monotonic() + _SECONDS
        try:
            self._commit(json.dumps({"partial": True, "table": str(self.name)}))
        except OvertakenError:  # somebody has compacted it: the next commit follows
            self._open()
            return
        self._waiting = []
        if self._table is not None and self._table.version % _CHECKPOINT_EVERY == _CHECKPOINT_EVERY - 1:
            write_checkpoint(self.path)

    def _commit(self, user_metadata: str) -> None:
        if self._table is not None:
            self._table = self._table.with_added(self._waiting, user_metadata)
            return
        numbers = [each["metadata"][COLUMN_ID] for each in self.fields if COLUMN_ID in each["metadata"]]
        features = MAPPED_NAMES if numbers else features_of_columns(self.columns)
        mapping = {COLUMN_MAPPING.key: COLUMN_MAPPING.value, MAX_ID: str(max(numbers, default=0))}
        create_table(
            self.path,
            self.fields,
            mapping if numbers else {},
            self._waiting,
            Transaction("partial", 0),
            features=[feature.name for feature in features],
            user_metadata=user_metadata,
            rows=sum(json.loads(file.stats)["numRecords"] for file in self._waiting),
            description=_SAYS.format(self.name),
        )
        self._open()

    def _open(self) -> None:
        self._table = None
        with suppress(OSError, ValueError):  # what somebody has damaged is made anew
            self._table = ListedTable.read(self.path, log_alone=True)


def is_partial(path: Location) -> bool:
    """Whether there is such a table. Raises LakeError."""
    return bool(files_below(path / _LOG))


def remove_partial(path: Location) -> None:
    """The files that it names stay. Raises LakeError."""
    # the newest commit first: as long as there is one, the table can be read
    if names := sorted((file.name for file in files_below(path / _LOG)), reverse=True):
        delete_files(path / _LOG, names)
        remove_empty_folders(path / _LOG)


def _below(file: AddAction) -> AddAction | None:
    folder, _, name = file.path.partition("/")
    return replace(file, path=name) if folder == PARTIAL else None


def _stored(column: LakeColumn) -> LakeColumn:
    """As it is in the files: JSON becomes a variant when the table is written."""
    return replace(column, lake_type=LakeType(LakeKind.STRING)) if column.lake_type.kind is LakeKind.VARIANT else column


def _id(metadata: Mapping[bytes, bytes] | None, number: int) -> int:
    return int((metadata or {}).get(b"PARQUET:field_id", number))
