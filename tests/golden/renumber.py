"""LSNs, transaction ids, OIDs and times of a recording → small numbers in the same order.

So recordings of several servers can be equal, and a new one differs only where the server does. Written from the
manual's table of formats alone, apart from the decoders that are tested with the outcome:
https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.golden.golden_file import LSN_STEP, Row

# byte offsets after the message type: L an LSN, T a time, X a transaction id, R a relation, Y a type
_FIELDS = {
    "B": "L0 T8 X16",
    "C": "L1 L9 T17",
    "R": "R0",
    "Y": "Y0",
    "I": "R0",
    "U": "R0",
    "D": "R0",
    "M": "L1",
    "S": "X0",
    "c": "X0 L5 L13 T21",
    "A": "X0 X4 L8 T16",
    "b": "L0 L8 T16 X24",
    "P": "L1 L9 T17 X25",
    "K": "L1 L9 T17 X25",
    "r": "L1 L9 T17 T25 X33",
    "p": "L1 L9 T17 X25",
}
_IN_STREAM = "RYIUDTM"
_FORMATS = {"L": ">Q", "T": ">q", "X": ">I", "R": ">I", "Y": ">I"}
_FIRST_USER_OID = 16384
_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# the lines of test_decoding that are not a row's or a message's
_TEXT_XID = re.compile(r"^(BEGIN |COMMIT |.*\bTXN |.*, txid )(\d+)( \(at .*\))?$")
_TEXT_TIME = re.compile(r" \(at (.*)\)$")

Rewrite = Callable[[str, int], int]


@dataclass
class _Ranks:
    """What was seen of each family, then its place among them."""

    seen: dict[str, set[int]] = field(default_factory=lambda: {family: set() for family in "LTXO"})
    places: dict[str, dict[int, int]] = field(default_factory=dict)

    def note(self, family: str, value: int) -> int:
        self.seen[_family(family)].add(value)
        return value

    def settle(self) -> None:
        base, step = (
            {"L": 0x1000, "T": 757_382_400_000_000, "X": 700, "O": _FIRST_USER_OID},
            {"L": LSN_STEP, "T": 1_000_000},
        )
        for family, values in self.seen.items():
            numbers = sorted(value for value in values if value and not (family == "O" and value < _FIRST_USER_OID))
            self.places[family] = {v: base[family] + n * step.get(family, 1) for n, v in enumerate(numbers)}

    def renumbered(self, family: str, value: int) -> int:
        return self.places[_family(family)].get(value, value)


def renumber(plugin: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """The same rows with small numbers."""
    walk = _walk_pgoutput if plugin == "pgoutput" else _walk_text
    ranks = _Ranks()
    walk(rows, ranks.note)
    ranks.settle()
    return walk(rows, ranks.renumbered)


def _family(letter: str) -> str:
    return "O" if letter in "RY" else letter


def _walk_pgoutput(rows: Sequence[Row], rewrite: Rewrite) -> tuple[Row, ...]:
    walked, streaming = [], False
    for row in rows:
        kind, data = chr(row.data[0]), bytearray(row.data)
        at = 1
        if streaming and kind in _IN_STREAM:
            _rewrite(data, "X", at, rewrite)
            at += 4
        for place in _FIELDS.get(kind, "").split():
            if at + int(place[1:]) + struct.calcsize(_FORMATS[place[0]]) <= len(data):  # A is short before protocol 4
                _rewrite(data, place[0], at + int(place[1:]), rewrite)
        if kind == "T":
            for offset in range(at + 5, len(data), 4):
                _rewrite(data, "R", offset, rewrite)
        if kind == "R":
            _rewrite_column_types(data, at + 4, rewrite)
        streaming = kind == "S" or (streaming and kind != "E")
        walked.append(Row(rewrite("L", row.lsn), rewrite("X", row.xid), bytes(data)))
    return tuple(walked)


def _rewrite(data: bytearray, letter: str, at: int, rewrite: Rewrite) -> None:
    [value] = struct.unpack_from(_FORMATS[letter], data, at)
    struct.pack_into(_FORMATS[letter], data, at, rewrite(letter, value))


def _rewrite_column_types(data: bytearray, names: int, rewrite: Rewrite) -> None:
    at = data.index(0, data.index(0, names) + 1) + 2  # after nspname, relname and relreplident
    [columns] = struct.unpack_from(">H", data, at)
    at += 2
    for _ in range(columns):
        at = data.index(0, at + 1) + 1  # after flags and name
        _rewrite(data, "Y", at, rewrite)
        at += 8


def _walk_text(rows: Sequence[Row], rewrite: Rewrite) -> tuple[Row, ...]:
    walked = []
    for row in rows:
        text = row.data.decode()
        if not text.startswith(("table ", "message: ")):
            text = _TEXT_XID.sub(lambda m: f"{m[1]}{rewrite('X', int(m[2]))}{m[3] or ''}", text)
            text = _TEXT_TIME.sub(lambda m: f" (at {_time(m[1], rewrite)})", text)
        walked.append(Row(rewrite("L", row.lsn), rewrite("X", row.xid), text.encode()))
    return tuple(walked)


def _time(text: str, rewrite: Rewrite) -> str:
    written = datetime.fromisoformat(text)
    microseconds = (written - _POSTGRES_EPOCH) // timedelta(microseconds=1)
    moved = _POSTGRES_EPOCH + timedelta(microseconds=rewrite("T", microseconds))
    return moved.strftime("%Y-%m-%d %H:%M:%S+00")
