"""The log sequence number, a change's position in the total order, and the half-open window."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_KEY = re.compile(r"([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})-([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})")
_KEY_OF_DIGITS = re.compile(r"([0-9A-F]{16})-([0-9A-F]{16})")


class Lsn(int):
    """A log sequence number: a byte offset in the WAL, printed as PostgreSQL prints ``pg_lsn``.

    >>> Lsn.parse("0/16B3748")
    Lsn('0/16B3748')
    >>> Lsn.parse("0/16B3748").key
    '00000000016B3748'
    """

    def __new__(cls, value: int) -> Lsn:
        if not 0 <= value < 1 << 64:
            raise ValueError(f"an LSN is an unsigned 64-bit number, got {value}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Read ``X/Y``, PostgreSQL's own notation; raises ValueError on anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not an LSN: {text!r} (expected two hexadecimal numbers, as in 0/16B3748)")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    @property
    def key(self) -> str:
        """Sixteen upper-case hexadecimal digits, which sort as text like the LSNs themselves."""
        return format(int(self), "016X")

    def __str__(self) -> str:
        return f"{int(self) >> 32:X}/{int(self) & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn('{self}')"


@dataclass(frozen=True, order=True)
class Position:
    """Where a change stands in the total order: its transaction's commit LSN, then its ordinal in the transaction.

    The LSN of a row is not a position: row LSNs are neither unique nor ordered.
    """

    commit_lsn: Lsn
    ordinal: int

    def __str__(self) -> str:
        return f"{self.commit_lsn}#{self.ordinal}"


@dataclass(frozen=True, order=True)
class Window:
    """The transactions whose commit record starts in ``[lo, hi)``.

    Any LSN is a valid bound, even one inside a record, so the windows ``[a, b)`` and ``[b, c)`` tile.

    ``spelling``: the partition key that it was read from, which may be of another notation; empty if of none.

    >>> Window.parse("0/16B3748-0/2000000").hi
    Lsn('0/2000000')
    >>> Window.parse("00000000016B3748-0000000002000000") == Window.parse("0/16B3748-0/2000000")
    True
    """

    lo: Lsn
    hi: Lsn
    spelling: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.lo > self.hi:
            raise ValueError(f"a window ends at or after its start, got {self.lo} to {self.hi}")

    @classmethod
    def parse(cls, key: str) -> Window:
        """Read a partition key ``START-END``; raises ValueError on anything else, including an empty window.

        Keys of the first releases have sixteen hexadecimal digits for each LSN; they are read as well.
        """
        bounds: list[Lsn] = []
        if match := _KEY.fullmatch(key):
            bounds = [Lsn.parse(text) for text in match.groups()]
        elif match := _KEY_OF_DIGITS.fullmatch(key):
            bounds = [Lsn(int(digits, 16)) for digits in match.groups()]
        if not bounds or bounds[0] >= bounds[1]:
            raise ValueError(
                f"not an LSN window: {key!r} (expected START-END, two ascending LSNs, as in 0/16B3748-0/2000000)"
            )
        return cls(bounds[0], bounds[1], key)

    @property
    def key(self) -> str:
        """The partition key: ``START-END``, end exclusive, in PostgreSQL's own notation; or as it was spelled."""
        return self.spelling or f"{self.lo}-{self.hi}"

    @property
    def size(self) -> int:
        """The bytes of WAL between the bounds."""
        return int(self.hi) - int(self.lo)

    def __str__(self) -> str:
        return f"[{self.lo}, {self.hi})"
