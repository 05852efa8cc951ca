"""Points in the source's history: an LSN, or a time with its zone."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from spark_jobs.logicalrep.lsn import Lsn

# a position in the WAL, or a time with a time zone
Point: TypeAlias = Lsn | datetime


def point(text: str) -> Lsn | datetime:
    """``0/16B3748`` or ``2026-11-22T13:00:00Z``. Raises ValueError.

    >>> point("0/16B3748")
    Lsn('0/16B3748')
    >>> point("2026-11-22 13:00:00+01").isoformat()
    '2026-11-22T13:00:00+01:00'
    """
    if "/" in text:
        return Lsn.parse(text)
    try:
        time = datetime.fromisoformat(text.upper())  # RFC 3339 allows a small z, which it does not read
    except ValueError:
        expected = "expected an LSN, as in 0/16B3748, or a time, as in 2026-11-22T13:00:00Z"
        raise ValueError(f"neither an LSN nor a time: {text!r} ({expected})") from None
    if time.tzinfo is None:
        whole = time.isoformat()
        raise ValueError(f"a time without its zone: {text!r} (expected one as in {whole}Z or {whole}+02:00)")
    return time
