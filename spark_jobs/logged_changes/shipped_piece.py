"""A piece on its way to an executor that has nothing of this package.

Spark sends the code of a reader once for all tasks, and what each task is to read with the task. Were a piece pickled
with its code, each would take a megabyte; so it is pickled as data, and its classes come with the reader.
"""

from __future__ import annotations

import io
import pickle

from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.logged_changes.piece import Piece
from spark_jobs.logicalrep.lsn import Lsn, Position
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.relation_version import RelationVersion
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from spark_jobs.schema.wire_type import Family, WireType
from spark_jobs.storage import Location, Storage, StoreSettings

_CLASSES: dict[tuple[str, str], type] = {
    (each.__module__, each.__qualname__): each
    for each in (
        Piece,
        NetRules,
        TableShape,
        LakeColumn,
        LakeType,
        LakeKind,
        WireType,
        Family,
        RelationVersion,
        QualifiedName,
        Position,
        Lsn,
        Location,
        Storage,
        StoreSettings,
    )
}


def packed(piece: Piece) -> bytes:
    return pickle.dumps(piece)


def unpacked(data: bytes) -> Piece:
    """Runs on the executor. ``data``: what ``packed`` returned."""
    piece = _Unpickler(io.BytesIO(data)).load()
    assert isinstance(piece, Piece)
    return piece


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        return _CLASSES.get((module, name)) or super().find_class(module, name)
