"""Turns a column that a snapshot has read, in one of three forms, into the lake values of pgoutput's text for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from spark_jobs.decode.binary.cast import cast_binary
from spark_jobs.decode.masked_text import masked_text
from spark_jobs.decode.values import Fitted, OnUnrepresentable, cast_text
from spark_jobs.options.table_mask import TableMask
from spark_jobs.schema.lake_types import NUMERIC_OID, LakeKind, LakeType
from spark_jobs.schema.wire_type import wire_type

# bool, bytea, int8, int2, int4, text, varchar: Arrow has types that hold all their values
_NATIVE = {16, 17, 20, 21, 23, 25, 1043}
# types with NaN, infinities or years that the lake may not hold: we decide about those, not the driver
SEND_FUNCTIONS = {
    700: "float4send",
    701: "float8send",
    1082: "date_send",
    1114: "timestamp_send",
    1184: "timestamptz_send",
    NUMERIC_OID: "numeric_send",
}


class ReadForm(Enum):
    """NATIVE: as the driver reads the type; BINARY: as the type's send function writes it; TEXT: as its output function
    writes it. Each costs the server and the executors more than the one before.
    """

    NATIVE = "native"
    BINARY = "binary"
    TEXT = "text"


def read_form(base_typid: int, to: LakeType, *, masked: bool) -> ReadForm:
    """The form in which values of this type are read. Masked ones are read as text, because the text is hashed."""
    if masked:
        return ReadForm.TEXT
    if base_typid in _NATIVE:
        return ReadForm.NATIVE
    # a numeric that becomes a string, or a decimal that the configuration chose, needs the output function's digits
    if base_typid in SEND_FUNCTIONS and not (to.kind is LakeKind.STRING or to.chosen):
        return ReadForm.BINARY
    return ReadForm.TEXT


@dataclass(frozen=True)
class SnapshotColumn:
    """``base_typid``: the column's type; for a domain, its base type. ``on_unrepresentable``: its policy.
    ``mask``: that of a masked column, which is text."""

    name: str
    base_typid: int
    lake_type: LakeType
    on_unrepresentable: OnUnrepresentable = "error"
    mask: TableMask | None = None

    @property
    def form(self) -> ReadForm:
        return read_form(self.base_typid, self.lake_type, masked=self.mask is not None)

    def values(self, read: pa.Array, *, table: str) -> Fitted:
        """The values of ``read`` as ``lake_type.arrow``, with nulls and errors as ``cast_text`` has them."""
        if self.mask is not None:
            return Fitted(masked_text(read, self.mask))
        policy, wire = self.on_unrepresentable, wire_type(self.base_typid)
        if self.form is ReadForm.NATIVE and self.lake_type.kind is not LakeKind.STRING:  # text may not be UTF-8
            return Fitted(read)
        if self.form is ReadForm.BINARY:
            return cast_binary(read, wire, self.lake_type, name=self.name, table=table, on_unrepresentable=policy)
        return cast_text(read, self.lake_type, wire, name=self.name, table=table, on_unrepresentable=policy)
