"""A table's name, schema and relation: as SQL writes it, and as part of a path."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from urllib.parse import quote

from spark_jobs.errors import CONTROLS

# one SQL identifier: "quoted, with "" for a quote", U&"with \\XXXX for a character", or a bare word, which PostgreSQL
# folds to lower case. https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS
_IDENTIFIER = re.compile(r'([Uu]&)?"((?:[^"]|"")+)"|([^\W\d][\w$]*)')
_BARE = re.compile(r"[a-z_][a-z0-9_$]*")
_ESCAPE = re.compile(r"\\(?:(\\)|([0-9A-Fa-f]{4})|\+([0-9A-Fa-f]{6})|)")


@dataclass(frozen=True, order=True)
class QualifiedName:
    """``nspname.relname``, unquoted, as in ``pg_namespace`` and ``pg_class``. A table of ours without a source table
    has an empty ``nspname``.

    >>> QualifiedName.parse('public."Order Items"')
    QualifiedName(nspname='public', relname='Order Items')
    >>> QualifiedName.parse("Public.Orders").relname
    'orders'
    """

    nspname: str
    relname: str

    @classmethod
    def parse(cls, text: str) -> QualifiedName:
        """Read a name as SQL writes it; a name without a schema is in ``public``. Raises ValueError."""
        parts: list[str] = []
        at = 0
        while match := _IDENTIFIER.match(text, at):
            parts.append(_read(match))
            at = match.end()
            if at == len(text) or text[at] != ".":
                break
            at += 1
        if at != len(text) or not 1 <= len(parts) <= 2 or text.endswith("."):
            raise ValueError(
                f'not a table name: {text!r} (expected schema.table, with "double quotes" where SQL needs them)'
            )
        return cls(*parts) if len(parts) == 2 else cls("public", parts[0])

    @property
    def path(self) -> str:
        """``schema/table`` with everything except letters, digits, ``_`` and ``-`` percent-encoded; in the name
        ``_delta_log`` the first ``_`` too."""
        return "/".join(_percent_encoded(name) for name in (self.nspname, self.relname) if name)

    def __str__(self) -> str:
        return ".".join(quoted_identifier(name) for name in (self.nspname, self.relname) if name)


def _read(match: re.Match[str]) -> str:
    unicode, quoted, bare = match.groups()
    if bare:
        return str(bare).lower()
    name = str(quoted).replace('""', '"')
    return _ESCAPE.sub(_character, name) if unicode else name


def _character(escape: re.Match[str]) -> str:
    code = escape[2] or escape[3]
    character = escape[1] or (code and int(code, 16) <= sys.maxunicode and chr(int(code, 16)))
    if not character or "\ud800" <= character <= "\udfff":
        raise ValueError(f"not an escape of U&: {escape.string!r} (expected \\\\, \\XXXX or \\+XXXXXX)")
    return str(character)


def quoted_identifier(identifier: str) -> str:
    """As SQL writes it, for display, hints and configuration; the driver composes the statements that we execute. The
    result has no control characters: such names are shown as SQL can write them."""
    if _BARE.fullmatch(identifier):
        return identifier
    doubled = identifier.replace('"', '""')
    if not CONTROLS.search(identifier):
        return f'"{doubled}"'
    escaped = CONTROLS.sub(lambda found: f"\\{ord(found[0]):04X}", doubled.replace("\\", "\\\\"))
    return f'U&"{escaped}"'


def _percent_encoded(name: str) -> str:
    encoded = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    # a folder named _delta_log would turn its parent folder into a Delta table
    return "%5Fdelta_log" if name == "_delta_log" else encoded
