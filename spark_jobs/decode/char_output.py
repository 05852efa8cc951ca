r"""The output of ``"char"``, which PostgreSQL 14 writes otherwise than later releases do."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.schema.wire_type import Family, WireType


def as_printed_since_15(column: pa.Array, wire_type: WireType) -> pa.Array:
    r"""PostgreSQL's text of a column of this type, with ``\ooo`` for a ``"char"`` above 127.

    PostgreSQL 14 prints that byte alone, which is no UTF-8. In a database with an encoding of one byte per character,
    the server has made a character of it before, which remains.
    """
    if wire_type.family is not Family.CHAR:
        return column
    encoded = column.cast(pa.binary()).dictionary_encode()
    texts = [_escaped(text) for text in encoded.dictionary.to_pylist()]
    return pc.take(pa.array(texts, pa.binary()), encoded.indices)


def _escaped(text: bytes) -> bytes:
    return b"\\%03o" % text[0] if len(text) == 1 and text[0] > 127 else text
