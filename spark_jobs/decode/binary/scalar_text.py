"""Renders binary numbers, bytes, identifiers and addresses as PostgreSQL's text, one value at a time.

All functions raise ValueError for what the type's send function does not write.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable

from spark_jobs.decode.binary.float_text import float4_text, float8_text
from spark_jobs.logicalrep.cursor import Cursor

_NUMERIC_SIGNS = {0x0000: "", 0x4000: "-"}
_NUMERIC_SPECIALS = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_NUMERIC_BASE = 10_000
_MAX_DSCALE = 0x3FFF


def bool_text(cursor: Cursor) -> str:
    return "ft"[cursor.flags(1, "bool")]


def integer(size: int, *, signed: bool = True) -> Callable[[Cursor], str]:
    """Renders integers of ``size`` bytes."""

    def text(cursor: Cursor) -> str:
        return str(int.from_bytes(cursor.take(size, "integer"), "big", signed=signed))

    return text


def float4_wire(cursor: Cursor) -> str:
    return float4_text(struct.unpack(">f", cursor.take(4, "float4"))[0])


def float8_wire(cursor: Cursor) -> str:
    return float8_text(struct.unpack(">d", cursor.take(8, "float8"))[0])


def numeric_text(cursor: Cursor) -> str:
    """Groups of four digits, of which the first counts 10000^weight, with ``dscale`` digits after the decimal point."""
    size, weight, sign, dscale = (
        cursor.uint16("ndigits"),
        int16(cursor),
        cursor.uint16("sign"),
        cursor.uint16("dscale"),
    )
    groups = [cursor.uint16("digit") for _ in range(size)]
    if dscale > _MAX_DSCALE:
        raise ValueError("numeric")
    if sign in _NUMERIC_SPECIALS and not groups:
        return _NUMERIC_SPECIALS[sign]
    if sign not in _NUMERIC_SIGNS or any(group >= _NUMERIC_BASE for group in groups):
        raise ValueError("numeric")
    if groups and not (groups[0] and groups[-1]):  # PostgreSQL strips zero groups
        raise ValueError("numeric")
    digits = "".join(f"{group:04}" for group in groups)
    before = 4 * (weight + 1)
    whole = digits[:before].ljust(before, "0") if before > 0 else ""
    fraction = "0" * -before + digits if before < 0 else digits[before:]
    if fraction[dscale:].strip("0"):
        raise ValueError("numeric")
    integer = _NUMERIC_SIGNS[sign] + (whole.lstrip("0") or "0")
    return f"{integer}.{fraction[:dscale].ljust(dscale, '0')}" if dscale else integer


def money_text(cursor: Cursor) -> str:
    """Dollars and two decimals: every session pins ``lc_monetary = C``."""
    value = cursor.int64("money")
    whole, cents = divmod(abs(value), 100)
    return f"{'-' if value < 0 else ''}${whole:,}.{cents:02}"


def text_wire(cursor: Cursor) -> str:
    return cursor.take(cursor.left, "text").decode()


def versioned_text(cursor: Cursor) -> str:
    if cursor.uint8("version") != 1:
        raise ValueError("version")
    return text_wire(cursor)


def char_text(cursor: Cursor) -> str:
    r"""One byte; above 127 it is ``\ooo``, as PostgreSQL 15 and later print it."""
    byte = cursor.uint8("char")
    if byte > 127:
        return f"\\{byte:03o}"
    return chr(byte) if byte else ""


def bytea_text(cursor: Cursor) -> str:
    return "\\x" + cursor.take(cursor.left, "bytea").hex()


def uuid_text(cursor: Cursor) -> str:
    return str(uuid.UUID(bytes=cursor.take(16, "uuid")))


def macaddr_text(cursor: Cursor) -> str:
    if cursor.left not in (6, 8):
        raise ValueError("macaddr")
    return cursor.take(cursor.left, "macaddr").hex(":")


def bit_text(cursor: Cursor) -> str:
    size = cursor.int32("bits")
    data = cursor.take(cursor.left, "bits")
    if size < 0 or len(data) != (size + 7) // 8:
        raise ValueError("bit")
    digits = "".join(f"{byte:08b}" for byte in data)
    if digits[size:].strip("0"):
        raise ValueError("bit")
    return digits[:size]


def tid_text(cursor: Cursor) -> str:
    return f"({cursor.uint32('block')},{cursor.uint16('offset')})"


def lsn_text(cursor: Cursor) -> str:
    return f"{cursor.uint32('lsn'):X}/{cursor.uint32('lsn'):X}"


def lsn_of_19_text(cursor: Cursor) -> str:
    return f"{cursor.uint32('lsn'):X}/{cursor.uint32('lsn'):08X}"


def snapshot_text(cursor: Cursor) -> str:
    size = cursor.int32("nxip")
    if size < 0 or cursor.left != 8 * (size + 2):
        raise ValueError("pg_snapshot")
    xmin, xmax = uint64(cursor), uint64(cursor)
    return f"{xmin}:{xmax}:" + ",".join(str(uint64(cursor)) for _ in range(size))


def int16(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(2, "int2"), "big", signed=True)


def uint64(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(8, "xid8"), "big")
