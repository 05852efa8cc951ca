"""A table's name, schema and relation: as SQL writes it, and as part of a path."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from spark_jobs.errors import CONTROLS

# one SQL identifier: "quoted, with "" for a quote", U&"with \\XXXX for a character", or a bare word, which PostgreSQL
# folds to lower case. https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS
QUOTED = r'([Uu]&)?"((?:[^"]|"")+)"'
_IDENTIFIER = re.compile(rf"{QUOTED}|([^\W\d][\w$]*)")
_BARE = re.compile(r"[a-z_][a-z0-9_$]*")
# what PostgreSQL 14 to 19 take for a name only in quotes: the words of pg_get_keywords() that are reserved, also those
# that may be the name of a function or a type
_RESERVED = """
all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze
from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit
localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references
returning right select session_user similar some symmetric system_user table tablesample then to trailing true union
unique user using variadic verbose when where window with
"""
RESERVED_WORDS = frozenset(_RESERVED.split())
_FEW = 3
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
            parts.append(unquoted(match))
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
        return "/".join(percent_encoded(name) for name in (self.nspname, self.relname) if name)

    @classmethod
    def of_path(cls, path: str) -> QualifiedName:
        """The inverse of ``path``. Raises ValueError."""
        nspname, relname = map(unquote, path.split("/"))
        return cls(nspname, relname)

    def __str__(self) -> str:
        # after a dot, SQL takes a reserved word for a name
        relname = self.relname if self.relname in RESERVED_WORDS else quoted_identifier(self.relname)
        return f"{quoted_identifier(self.nspname)}.{relname}" if self.nspname else relname


def unquoted(match: re.Match[str]) -> str:
    """The characters that one identifier, ``QUOTED`` or bare, stands for. Raises ValueError for a wrong escape."""
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
    if _BARE.fullmatch(identifier) and identifier not in RESERVED_WORDS:
        return identifier
    doubled = identifier.replace('"', '""')
    if not CONTROLS.search(identifier):
        return f'"{doubled}"'
    escaped = CONTROLS.sub(lambda match: f"\\{ord(match[0]):04X}", doubled.replace("\\", "\\\\"))
    return f'U&"{escaped}"'


def percent_encoded(name: str) -> str:
    """A name as it is in a folder's."""
    encoded = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    # a folder named _delta_log would turn its parent folder into a Delta table
    return "%5Fdelta_log" if name == "_delta_log" else encoded


def names_like(wanted: Iterable[QualifiedName], known: Iterable[QualifiedName]) -> list[QualifiedName]:
    """Those that may have been meant: their own names are the same, in another schema say, or much alike."""
    by_relname: dict[str, list[QualifiedName]] = {}
    for name in known:
        by_relname.setdefault(name.relname, []).append(name)
    near = dict.fromkeys(
        near for name in wanted for near in difflib.get_close_matches(name.relname, by_relname, n=_FEW)
    )
    return [name for relname in near for name in by_relname[relname]][:_FEW]
