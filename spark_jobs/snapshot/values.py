"""What a snapshot reads of a column, in one of three forms, → the lake value that pgoutput's text of it gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from spark_jobs.decode.binary.cast import cast_binary
from spark_jobs.decode.masked_text import masked_text
from spark_jobs.decode.values import OnUnrepresentable, cast_text
from spark_jobs.schema.lake_types import NUMERIC_OID, LakeKind, LakeType
from spark_jobs.schema.wire_type import wire_type
from spark_jobs.table_mask import TableMask

# bool, bytea, int8, int2, int4, text, varchar: one Arrow type holds every value that they can have
_NATIVE = {16, 17, 20, 21, 23, 25, 1043}
# NaNs, infinities and years that the lake's type may not hold are for us to judge, not for the driver
SEND_FUNCTIONS = {
    700: "float4send",
    701: "float8send",
    1082: "date_send",
    1114: "timestamp_send",
    1184: "timestamptz_send",
    NUMERIC_OID: "numeric_send",
}


class Form(Enum):
    """NATIVE: the driver's own reading of the type; BINARY: what its send function writes; TEXT: its output function.

    The later ones cost the server and the executors more.
    """

    NATIVE = "native"
    BINARY = "binary"
    TEXT = "text"


def form_of(base_typid: int, to: LakeType, *, masked: bool = False) -> Form:
    """In which form values of this type are read. Masked ones as text: hashes are made of what PostgreSQL prints."""
    if masked:
        return Form.TEXT
    if base_typid in _NATIVE:
        return Form.NATIVE
    # a numeric that is a string in the lake, or must fit a decimal, has the digits that its output function writes
    if base_typid in SEND_FUNCTIONS and not (to.kind is LakeKind.STRING or to.chosen):
        return Form.BINARY
    return Form.TEXT


@dataclass(frozen=True)
class SnapshotColumn:
    """``base_typid``: the column's type, that under a domain. ``on_unrepresentable``: its own, None: that of all.
    ``mask``: of a masked column, which is text."""

    name: str
    base_typid: int
    lake_type: LakeType
    on_unrepresentable: OnUnrepresentable | None = None
    mask: TableMask | None = None

    @property
    def form(self) -> Form:
        return form_of(self.base_typid, self.lake_type, masked=self.mask is not None)

    def values(self, read: pa.Array, *, table: str, on_unrepresentable: OnUnrepresentable) -> pa.Array:
        """The values in ``lake_type.arrow``; nulls are those of ``read``, and under ``"null"`` more. Raises as
        ``cast_text``."""
        if self.mask is not None:
            return masked_text(read, self.mask)
        policy = self.on_unrepresentable or on_unrepresentable
        if self.form is Form.NATIVE and self.lake_type.kind is not LakeKind.STRING:  # text may not be UTF-8
            return read
        if self.form is Form.BINARY:
            return cast_binary(
                read,
                wire_type(self.base_typid),
                self.lake_type,
                name=self.name,
                table=table,
                on_unrepresentable=policy,
            )
        return cast_text(read, self.lake_type, name=self.name, table=table, on_unrepresentable=policy)
