"""The columns that a table has besides the source's: which commit last wrote a row, when it was deleted, how long it
was valid, or which change it records."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.options.table_mode import Form, Mode
from spark_jobs.schema.moment import Moment


@dataclass(frozen=True)
class ModeColumn:
    """A column of the lake's table that the source does not have; ``net`` is its name in a net change."""

    name: str
    net: str
    arrow: pa.DataType
    sql: str


_INSTANT, _LSN = (pa.timestamp("us", tz="UTC"), "timestamp"), (pa.int64(), "bigint")

# null while the row exists, then the time of the commit that deleted it
DELETED_AT = ModeColumn("_deleted_at", "deleted_at", *_INSTANT)

# a version of a row is valid from the commit that made it until the one that replaced or deleted it, null if none has
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
# names of columns without a value in the message: unchanged ones stored out of line, or all but the key of an old row
NOT_SENT = ModeColumn("_not_sent", "not_sent", pa.list_(pa.string()), "array<string>")

BEFORE_ALL_CHANGES = -1  # the ordinal of a row that a snapshot brought

_OF_COMMIT = {column.name: column for column in (COMMIT_LSN, COMMIT_TIME)}

_COLUMNS: dict[Mode, tuple[ModeColumn, ...]] = {
    "mirror": (),
    "soft_delete": (DELETED_AT,),
    "history": (VALID_FROM_LSN, VALID_FROM, VALID_TO_LSN, VALID_TO),
    "append": (CHANGE, COMMIT_LSN, ORDINAL, COMMIT_TIME, XID, NOT_SENT),
}

# the condition that selects the rows that the source has at the watermark; None: the table holds changes
_LIVE: dict[Mode, str | None] = {
    "mirror": "true",
    "soft_delete": f"`{DELETED_AT.name}` IS NULL",
    "history": f"`{VALID_TO_LSN.name}` IS NULL",
    "append": None,
}


# null in the rows that the source has, in modes that mark the others
_ENDED: dict[Mode, ModeColumn] = {"soft_delete": DELETED_AT, "history": VALID_TO_LSN}


def mode_columns(mode: Mode) -> tuple[ModeColumn, ...]:
    """The columns that the mode adds after the source's, in this order."""
    return _COLUMNS[mode]


def ended_column(mode: Mode) -> ModeColumn | None:
    """The column that is null in the rows that the source has; None if there is none."""
    return _ENDED.get(mode)


def own_columns(form: Form) -> tuple[ModeColumn, ...]:
    """All that follow the source's, in this order."""
    return (*(_OF_COMMIT[name] for name in form.commit_columns), *mode_columns(form.mode))


def since_snapshot(column: ModeColumn, moment: Moment) -> int | str | None:
    """What the column has in a row that exists since a snapshot. Times: in microseconds since 1970, UTC."""
    lsn, at = int(moment.lsn), moment.at
    known: dict[ModeColumn, int | str | None] = {VALID_FROM_LSN: lsn, VALID_FROM: at, CHANGE: "snapshot"}
    known |= {COMMIT_LSN: lsn, ORDINAL: BEFORE_ALL_CHANGES, COMMIT_TIME: at}
    return known.get(column)


def live_rows(mode: Mode) -> str | None:
    """The SQL condition for the rows that the source has; None if no condition selects them."""
    return _LIVE[mode]
