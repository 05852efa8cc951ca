"""A table's name: schema and relation, as SQL writes it, as a path holds it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

# one SQL identifier: "quoted, with "" for a quote" or a bare word, folded to lower case as PostgreSQL does
_IDENTIFIER = re.compile(r'"((?:[^"]|"")+)"|([^\W\d][\w$]*)')
_BARE = re.compile(r"[a-z_][a-z0-9_$]*")


@dataclass(frozen=True, order=True)
class QualifiedName:
    """``nspname.relname`` with the names as they stand in ``pg_class`` and ``pg_namespace``, unquoted.

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
            parts.append(match[1].replace('""', '"') if match[1] else match[2].lower())
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
        """``schema/table`` with all but letters, digits, ``_`` and ``-`` percent-encoded."""
        return f"{_percent_encoded(self.nspname)}/{_percent_encoded(self.relname)}"

    def __str__(self) -> str:
        return f"{_quoted(self.nspname)}.{_quoted(self.relname)}"


def _quoted(identifier: str) -> str:
    """For display and configuration only; statements are composed by the driver."""
    if _BARE.fullmatch(identifier):
        return identifier
    return '"' + identifier.replace('"', '""') + '"'


def _percent_encoded(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
