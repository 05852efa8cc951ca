"""A cursor over one message: reads are big-endian, and checked against the message's end."""

from __future__ import annotations

from spark_jobs.logicalrep.errors import FieldError, TrailingBytesError, TruncatedMessageError
from spark_jobs.logicalrep.lsn import Lsn


class Cursor:
    """Reads the fields of one message in wire order; ``finish`` checks that the whole message was read."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int, field: str) -> bytes:
        """The next ``size`` bytes. Raises TruncatedMessageError naming the field."""
        if size < 0:
            raise FieldError(f"{field}: negative length {size} at byte {self._at}")
        end = self._at + size
        if end > len(self._data):
            raise TruncatedMessageError(f"{field}: {size} bytes wanted at byte {self._at}, {self.left} are left")
        data = self._data[self._at : end]
        self._at = end
        return data

    def uint8(self, field: str) -> int:
        return self.take(1, field)[0]

    def uint16(self, field: str) -> int:
        return int.from_bytes(self.take(2, field), "big")

    def uint32(self, field: str) -> int:
        return int.from_bytes(self.take(4, field), "big")

    def int32(self, field: str) -> int:
        return int.from_bytes(self.take(4, field), "big", signed=True)

    def int64(self, field: str) -> int:
        return int.from_bytes(self.take(8, field), "big", signed=True)

    def lsn(self, field: str) -> Lsn:
        return Lsn(int.from_bytes(self.take(8, field), "big"))

    def set_lsn(self, field: str) -> Lsn:
        """An LSN that PostgreSQL never sends as zero. Raises FieldError for zero."""
        lsn = self.lsn(field)
        if lsn == 0:
            raise FieldError(f"{field} is not set")
        return lsn

    def xid(self, field: str = "xid") -> int:
        """A transaction identifier. Raises FieldError for zero, which is not one."""
        xid = self.uint32(field)
        if xid == 0:
            raise FieldError(f"{field} is not set")
        return xid

    def flags(self, known: int, field: str) -> int:
        """A byte of flag bits. Raises FieldError for bits outside ``known``."""
        flags = self.uint8(field)
        if flags & ~known:
            raise FieldError(f"{field}: unknown bits in 0x{flags:02X}")
        return flags

    def char(self, field: str) -> str:
        """One byte as a character; a byte above 127 becomes the code point of that number."""
        return chr(self.uint8(field))

    def cstring(self, field: str) -> str:
        """A NUL-terminated string in UTF-8, the client encoding that every session pins."""
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise TruncatedMessageError(f"{field}: no terminating NUL after byte {self._at}")
        data = self._data[self._at : end]
        self._at = end + 1
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise FieldError(f"{field}: not UTF-8 (the session's client_encoding must be UTF8)") from None

    def counted(self, field: str) -> bytes:
        """An int32 length and that many bytes."""
        return self.take(self.int32(f"{field} length"), field)

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._at

    def finish(self) -> None:
        """Raises TrailingBytesError unless the whole message was read."""
        if self.left:
            raise TrailingBytesError(f"{self.left} bytes are left after the last field, at byte {self._at}")
