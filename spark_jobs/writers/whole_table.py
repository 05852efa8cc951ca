"""All rows of a table replaced without Spark: data files that this process has written become the table, in one commit.

A table that does not exist is created, just as Spark would create it. One that exists keeps its columns and its
properties; if its columns are to change, that is left to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from deltalake.transaction import AddAction

from spark_jobs.delta.append import commit_files
from spark_jobs.delta.commit import Transaction
from spark_jobs.delta.commit_errors import commit_errors, overtaken
from spark_jobs.delta.data_files import Layout
from spark_jobs.delta.first_commit import create_table
from spark_jobs.delta.table import is_ambiguous, table_errors
from spark_jobs.delta.transaction_log import TransactionLog, note_version
from spark_jobs.delta.written_tables import keep_written
from spark_jobs.schema.column_changes import DeltaColumn
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.storage import Location
from spark_jobs.writers.delta_table import ATTNUM
from spark_jobs.writers.file_layout import file_layout
from spark_jobs.writers.opened_table import COLUMN_ID, FEATURES, PHYSICAL, SPARK_NAMES, OpenedTable, opened_table
from spark_jobs.writers.table_commit import Provenance, numbered_commit
from spark_jobs.writers.table_features import COLUMN_MAPPING, TRANSACTIONS_STAY, features_of_columns

STEM = "snapshot"  # of the names of data files: see leftovers
_NO_FIELDS = {LakeKind.ARRAY, LakeKind.VARIANT}
_DELTA_NAMES = {spark: delta for delta, spark in SPARK_NAMES.items()}


@dataclass(frozen=True)
class WholeTable:
    """The table at ``path``. ``physical`` and ``ids``: the names and numbers of ``columns`` in the data files, in the
    same order; without column mapping they have their own names, and no numbers. ``is_new``: there was no table."""

    path: Location
    columns: tuple[LakeColumn, ...]
    physical: tuple[str, ...]
    ids: tuple[int | None, ...]
    is_new: bool

    @classmethod
    def of(cls, path: Location, shape: TableShape, provenance: Provenance) -> WholeTable | None:
        """``provenance``: that of the commit. None if Spark must write the table: for its types, its path, or what is
        there. Raises LakeError."""
        columns = shape.columns
        if is_ambiguous(path) or not columns or any(column.lake_type.kind in _NO_FIELDS for column in columns):
            return None
        with table_errors(f"{path} cannot be read"):
            log = TransactionLog.open(path)
            if log is None:
                return cls._new(path, columns)
            held = log.transaction_version(provenance.txn_app_id) or 0
        opened = opened_table(path, log.version)
        # a number that does not fit: the table has forgotten it, see table_state
        if held != provenance.commits - 1 or opened is None or not _has_exactly(opened, columns):
            return None
        return cls(path, columns, *opened.in_files(columns), is_new=False)

    @classmethod
    def _new(cls, path: Location, columns: tuple[LakeColumn, ...]) -> WholeTable:
        if COLUMN_MAPPING not in features_of_columns(columns):
            names = tuple(column.name for column in columns)
            return cls(path, columns, names, (None,) * len(columns), is_new=True)
        names = tuple(f"col-{uuid4()}" for _ in columns)
        return cls(path, columns, names, tuple(range(1, len(columns) + 1)), is_new=True)

    @property
    def layout(self) -> Layout:
        """How to write the data files: the values of ``columns``, under their physical names."""
        return file_layout(self.columns, self.physical, self.ids, stem=STEM)

    def commit(self, files: Sequence[AddAction], rows: int, provenance: Provenance) -> int:
        """Make the table hold exactly the ``rows`` of these files. Returns the Delta version.

        Raises OvertakenError if another writer has committed since the table's state was read, and LakeError.
        """
        if not self.is_new:
            return self._replaced(files, provenance)
        transaction = Transaction(provenance.txn_app_id, provenance.commits)
        features, settings = features_of_columns(self.columns), {**TRANSACTIONS_STAY}
        if COLUMN_MAPPING in features:
            settings |= {COLUMN_MAPPING.key: COLUMN_MAPPING.value}
            settings |= {"delta.columnMapping.maxColumnId": str(len(self.columns))}
        if not create_table(
            self.path,
            list(map(_field, self.columns, self.physical, self.ids)),
            settings,
            files,
            transaction,
            features=[feature.name for feature in features],
            user_metadata=provenance.user_metadata(),
            rows=rows,
        ):
            raise overtaken(self.path)
        note_version(self.path, 0)
        return 0

    def _replaced(self, files: Sequence[AddAction], provenance: Provenance) -> int:
        # opened only now: what others have committed while the files were written is replaced too, unless it is ours
        with table_errors(f"{self.path} cannot be read"):
            log = TransactionLog.open(self.path)
        opened = None if log is None else opened_table(self.path, log.version)
        if opened is None or not _has_exactly(opened, self.columns):
            raise overtaken(self.path)
        if opened.in_files(self.columns) != (self.physical, self.ids):
            raise overtaken(self.path)
        commit = numbered_commit(opened.opened, provenance)
        if commit is None:
            raise overtaken(self.path)
        with commit_errors(self.path):
            commit_files(opened.table, files, "overwrite", opened.table.schema(), commit)
        keep_written(opened.opened, commit)
        return opened.opened.log.version + 1


def _has_exactly(opened: OpenedTable, columns: Sequence[LakeColumn]) -> bool:
    """Whether the table has these columns, by name, type and attribute number, and no feature that we do not know."""
    wanted = tuple(DeltaColumn(column.name, column.lake_type.sql, column.attnum) for column in columns)
    return opened.features <= FEATURES and opened.columns == wanted and len(opened.physical) == len(columns)


def _field(column: LakeColumn, physical: str, number: int | None) -> dict[str, object]:
    """https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-mapping"""
    metadata: dict[str, object] = {ATTNUM: column.attnum}
    if number is not None:
        metadata |= {COLUMN_ID: number, PHYSICAL: physical}
    return {"name": column.name, "type": _delta_type(column.lake_type), "nullable": True, "metadata": metadata}


def _delta_type(lake_type: LakeType) -> str:
    return _DELTA_NAMES.get(lake_type.sql, lake_type.sql)
