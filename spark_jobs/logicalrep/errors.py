"""What can be wrong with a message.

::

    LogicalRepError             ValueError
    ├── TruncatedMessageError   a field runs past the end of the message
    ├── TrailingBytesError      bytes are left after the last field
    ├── UnknownMessageError     the first byte names no message of this protocol
    ├── UnknownTupleError       not the K, O or N that may stand there
    ├── UnknownColumnError      a column's kind is none of n, u, t, b
    ├── FieldError              a field holds what PostgreSQL never writes: flags, a zero LSN, text that is no UTF-8
    └── RelationMismatchError   a change does not fit the Relation message it is read with

Messages name offsets, field names and single protocol bytes, never values.
"""

from __future__ import annotations


class LogicalRepError(ValueError):
    """A message that is not what PostgreSQL's ``proto.c`` writes."""


class TruncatedMessageError(LogicalRepError):
    """A field runs past the end of the message."""


class TrailingBytesError(LogicalRepError):
    """Bytes are left after the message's last field."""


class UnknownMessageError(LogicalRepError):
    """The first byte names no message of this protocol."""


class UnknownTupleError(LogicalRepError):
    """The byte before a tuple is not one that may stand there."""


class UnknownColumnError(LogicalRepError):
    """A column's kind is none of ``n``, ``u``, ``t``, ``b``."""


class FieldError(LogicalRepError):
    """A field holds what PostgreSQL never writes there."""


class RelationMismatchError(LogicalRepError):
    """A change does not fit the Relation message it is read with: another relation, another number of columns."""
