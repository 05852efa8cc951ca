"""A cursor over one line of ``test_decoding``: reads and checks words, quoted names and literals."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from spark_jobs.logicalrep.errors import FieldError, TrailingBytesError, TruncatedMessageError
from spark_jobs.logicalrep.test_decoding.lines import TableName

_UNSIGNED = re.compile(rb"0|[1-9][0-9]*")
# names that quote_identifier (ruleutils.c) does not quote: ASCII letters in lower case, digits, underscores
_BARE_NAME = re.compile(rb"[a-z_][a-z0-9_]*")
# what format_type writes: bare words and quoted names, maybe with a schema; one [] for an array
_TYPE_NAME = re.compile(rb'(?:"(?:[^"]|"")+"|[^"\[\]])+(?:\[\])?')
_TIME = re.compile(rb"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class LineCursor:
    """Reads a line's parts in order; ``finish`` checks that the whole line was read."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at(self) -> int:
        """Bytes read so far."""
        return self._at

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def accept(self, word: str) -> bool:
        """Move past ``word`` if it stands here; returns whether it does."""
        is_next = self._data.startswith(word.encode(), self._at)
        self._at += len(word) if is_next else 0
        return is_next

    def expect(self, word: str) -> None:
        """Move past ``word``. If it is not here, raises TruncatedMessageError when the line ends too early, otherwise
        FieldError."""
        if self.accept(word):
            return
        rest = self._data[self._at : self._at + len(word)]
        if word.encode().startswith(rest):
            raise TruncatedMessageError(f"{word!r} wanted at byte {self._at}, the line ends there")
        raise FieldError(f"{word!r} wanted at byte {self._at}")

    def unsigned(self, field: str) -> int:
        return int(self._match(_UNSIGNED, field)[0])

    def uint32(self, field: str) -> int:
        number = self.unsigned(field)
        if number >= 1 << 32:
            raise FieldError(f"{field}: more than 32 bits")
        return number

    def name(self, field: str) -> str:
        """One identifier as ``quote_identifier`` writes it."""
        if self._data.startswith(b'"', self._at):
            return self._text(self._quoted(b'"', field), field)
        return self._match(_BARE_NAME, field)[0].decode("ascii")

    def table_name(self) -> TableName:
        nspname = self.name("schema name")
        self.expect(".")
        return nspname, self.name("table name")

    def type_name(self) -> str:
        """A type's name as ``format_type`` writes it, with its quotes."""
        return self._text(self._match(_TYPE_NAME, "type name")[0], "type name")

    @property
    def at_literal(self) -> bool:
        return self._data.startswith(b"'", self._at)

    def literal(self, field: str) -> bytes:
        """A quoted value: only quotes are doubled, backslashes are not escaped."""
        return self._quoted(b"'", field)

    def escaped_literal(self, field: str) -> str:
        """A value as ``quote_literal`` writes it: if it has backslashes, it begins with E and they are doubled."""
        escaped = self.accept("E")
        data = self._quoted(b"'", field)
        return self._text(data.replace(b"\\\\", b"\\") if escaped else data, field)

    def word(self, field: str) -> bytes:
        """The bytes up to the next space or the line's end; at least one."""
        end = self._data.find(b" ", self._at)
        word = self._data[self._at : end if end >= 0 else len(self._data)]
        if not word:
            raise TruncatedMessageError(f"{field}: nothing at byte {self._at}")
        self._at += len(word)
        return word

    def time(self, field: str) -> int:
        """A time as ``timestamptz_to_str`` writes it (ISO, with the session's offset), in wire microseconds."""
        match = self._match(_TIME, field)
        year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
        micros = int((match[7] or b"0").ljust(6, b"0"))
        hours, minutes, seconds = (int(match[group] or 0) for group in (9, 10, 11))
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds) * (1 if match[8] == b"+" else -1)
        try:
            local = datetime(year, month, day, hour, minute, second, micros, tzinfo=UTC)
        except ValueError:
            raise FieldError(f"{field}: not a time") from None
        return (local - _EPOCH - offset) // timedelta(microseconds=1)

    def until_counted(self, before: str, after: str, field: str) -> tuple[bytes, bytes]:
        """The text before ``{before}{n}{after}``, and the ``n`` bytes after it, which must end the line.

        The text may itself contain such a marker: the first one whose count fits the rest of the line is taken.
        """
        marker = re.compile(re.escape(before.encode()) + rb"(0|[1-9][0-9]*)" + re.escape(after.encode()))
        for match in marker.finditer(self._data, self._at):
            if len(match[1]) < 20 and len(self._data) - match.end() == int(match[1]):
                text, self._at = self._data[self._at : match.start()], len(self._data)
                return text, self._data[match.end() :]
        raise TruncatedMessageError(f"{field}: no count fits the rest of the line")

    def until_last(self, before: str, field: str) -> tuple[bytes, int]:
        """The text before ``{before}{n}``, which must end the line, and ``n``."""
        match = re.compile(re.escape(before.encode()) + rb"(0|[1-9][0-9]{0,18})\Z").search(self._data, self._at)
        if match is None:
            raise TruncatedMessageError(f"{field}: no count ends the line")
        text, self._at = self._data[self._at : match.start()], len(self._data)
        return text, int(match[1])

    def finish(self) -> None:
        """Raises TrailingBytesError unless the whole line was read."""
        left = len(self._data) - self._at
        if left:
            raise TrailingBytesError(f"{left} bytes are left after the last field, at byte {self._at}")

    def _quoted(self, quote: bytes, field: str) -> bytes:
        self.expect(quote.decode())
        begin = at = self._at
        while True:
            end = self._data.find(quote, at)
            if end < 0:
                raise TruncatedMessageError(f"{field}: no closing quote after byte {begin}")
            if not self._data.startswith(quote, end + 1):
                break
            at = end + 2
        self._at = end + 1
        return self._data[begin:end].replace(quote * 2, quote)

    def _match(self, pattern: re.Pattern[bytes], field: str) -> re.Match[bytes]:
        match = pattern.match(self._data, self._at)
        if match is None:
            kind = TruncatedMessageError if self.at_end else FieldError
            raise kind(f"{field}: unexpected text at byte {self._at}")
        self._at = match.end()
        return match

    @staticmethod
    def _text(data: bytes, field: str) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise FieldError(f"{field}: not UTF-8 (the session's client_encoding must be UTF8)") from None
