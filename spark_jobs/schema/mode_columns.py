"""What a table keeps beside the source's columns, by its mode: when a row was deleted, how long it was valid, or what
change it is of."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.table_mode import Mode


@dataclass(frozen=True)
class ModeColumn:
    """A column of the lake's table that the source does not have; ``net`` is its name in a net change."""

    name: str
    net: str
    arrow: pa.DataType
    sql: str


_INSTANT, _LSN = (pa.timestamp("us", tz="UTC"), "timestamp"), (pa.int64(), "bigint")

# null while the row is there; else the time of the commit that deleted it
DELETED_AT = ModeColumn("_deleted_at", "deleted_at", *_INSTANT)

# a version of a row is valid from the commit that made it to the one that replaced or deleted it; null: to this day
VALID_FROM_LSN = ModeColumn("_valid_from_lsn", "from_lsn", *_LSN)
VALID_FROM = ModeColumn("_valid_from", "from_at", *_INSTANT)
VALID_TO_LSN = ModeColumn("_valid_to_lsn", "to_lsn", *_LSN)
VALID_TO = ModeColumn("_valid_to", "to_at", *_INSTANT)

# insert, update_before, update, delete, truncate, snapshot
CHANGE = ModeColumn("_operation", "operation", pa.string(), "string")
COMMIT_LSN = ModeColumn("_commit_lsn", "commit_lsn", *_LSN)
ORDINAL = ModeColumn("_ordinal", "ordinal", *_LSN)
COMMIT_TIME = ModeColumn("_commit_time", "commit_time", *_INSTANT)
XID = ModeColumn("_xid", "xid", *_LSN)
# names of columns that the message had no value for: unchanged ones stored out of line, all but the key of an old row
NOT_SENT = ModeColumn("_not_sent", "not_sent", pa.list_(pa.string()), "array<string>")

_COLUMNS: dict[Mode, tuple[ModeColumn, ...]] = {
    "mirror": (),
    "soft_delete": (DELETED_AT,),
    "history": (VALID_FROM_LSN, VALID_FROM, VALID_TO_LSN, VALID_TO),
    "append": (CHANGE, COMMIT_LSN, ORDINAL, COMMIT_TIME, XID, NOT_SENT),
}

# which of a table's rows the source has at the table's watermark; None: they are changes, not rows
_LIVE: dict[Mode, str | None] = {
    "mirror": "true",
    "soft_delete": f"`{DELETED_AT.name}` IS NULL",
    "history": f"`{VALID_TO_LSN.name}` IS NULL",
    "append": None,
}


def mode_columns(mode: Mode) -> tuple[ModeColumn, ...]:
    """Behind the source's columns, in this order."""
    return _COLUMNS[mode]


def live_rows(mode: Mode) -> str | None:
    """The condition in SQL; None where no condition makes the source's rows of the table."""
    return _LIVE[mode]
