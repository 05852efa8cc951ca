"""The errors about messages that are not what PostgreSQL sends.

::

    LogicalRepError             ValueError
    ├── TruncatedMessageError   a field runs past the end of the message
    ├── TrailingBytesError      bytes are left after the last field
    ├── UnknownMessageError     the first byte names no message of this protocol
    ├── UnknownTupleError       a tuple begins with another byte than the K, O or N allowed there
    ├── UnknownColumnError      a column's kind is none of n, u, t, b
    ├── FieldError              a field holds what PostgreSQL never writes: unknown flags, a zero LSN, invalid UTF-8
    └── RelationMismatchError   a change does not fit the Relation message it is read with

Error messages name offsets, fields and single protocol bytes, never values.
"""

from __future__ import annotations


class LogicalRepError(ValueError):
    """A message that PostgreSQL's ``proto.c`` would not write."""


class TruncatedMessageError(LogicalRepError):
    """A field runs past the end of the message."""


class TrailingBytesError(LogicalRepError):
    """Bytes are left after the message's last field."""


class UnknownMessageError(LogicalRepError):
    """The first byte names no message of this protocol."""


class UnknownTupleError(LogicalRepError):
    """The byte before a tuple is not one of those allowed there."""


class UnknownColumnError(LogicalRepError):
    """A column's kind is none of ``n``, ``u``, ``t``, ``b``."""


class FieldError(LogicalRepError):
    """A field holds what PostgreSQL never writes there."""


class RelationMismatchError(LogicalRepError):
    """A change does not fit the Relation message it is read with: another relation, another number of columns."""
