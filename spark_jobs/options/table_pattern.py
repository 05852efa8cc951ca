"""Several tables by one text: ``public.*``, ``*.orders``, ``"Weird.Name".*``."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from spark_jobs.errors import ConfigurationError
from spark_jobs.qualified_name import QUOTED, QualifiedName, unquoted

# an identifier may have several pieces, as "Order"* does: bare letters are folded to lower case
_PIECE = re.compile(rf"{QUOTED}|([\w$*?]+)")


@dataclass(frozen=True)
class TablePattern:
    """A table's name, or a pattern: ``*`` stands for any characters of the schema or of the table, and ``?`` for one.
    Inside quotes they stand for themselves, as in psql's patterns.

    ``nspname`` and ``relname`` are in the notation of ``fnmatch``. ``name`` is None for a pattern.

    >>> TablePattern.parse("public.order_*").matches(QualifiedName("public", "order_items"))
    True
    >>> TablePattern.parse('"Weird.Name".*').matches(QualifiedName("weird", "name"))
    False
    """

    text: str
    nspname: str
    relname: str
    name: QualifiedName | None

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Read a name as ``QualifiedName.parse`` does, or a pattern; without a schema it is of ``public``. Raises
        ValueError."""
        parts, wild, at = [""], False, 0
        while match := _PIECE.match(text, at):
            piece, bare = unquoted(match), match[3] is not None
            parts[-1] += piece if bare else glob.escape(piece)
            wild = wild or (bare and not {"*", "?"}.isdisjoint(piece))
            at = match.end()
            if text[at : at + 1] == ".":
                parts.append("")
                at += 1
        if not wild and {"*", "?"}.isdisjoint(text[at:]):
            name = QualifiedName.parse(text)
            return cls(text, glob.escape(name.nspname), glob.escape(name.relname), name)
        if at != len(text) or len(parts) > 2 or not all(parts):
            raise ValueError(
                f"not a pattern of table names: {text!r} (expected schema.table with * or ?, and"
                ' "double quotes" where SQL needs them)'
            )
        return cls(text, "public" if len(parts) == 1 else parts[0], parts[-1], None)

    @property
    def schema(self) -> str | None:
        """The schema of all tables that match; None if they may be of several."""
        plain = re.sub(r"\[([*?[])\]", r"\1", self.nspname)
        return plain if glob.escape(plain) == self.nspname else None

    def matches(self, name: QualifiedName) -> bool:
        return fnmatchcase(name.nspname, self.nspname) and fnmatchcase(name.relname, self.relname)

    def __str__(self) -> str:
        return self.text if self.name is None else str(self.name)


def selected_names(patterns: Iterable[TablePattern], known: Collection[QualifiedName]) -> tuple[QualifiedName, ...]:
    """The tables that a user names, each once: those of ``known`` that match a pattern, in the order of ``known``, and
    plain names as they are, whether they are known or not. Raises ConfigurationError for a pattern without a match."""
    selected: dict[QualifiedName, None] = {}
    for pattern in patterns:
        matching = [name for name in known if pattern.matches(name)] if pattern.name is None else [pattern.name]
        if not matching:
            raise ConfigurationError(f"no table matches {pattern}", hint="`postgres-cdc status` lists the tables")
        selected |= dict.fromkeys(matching)
    return tuple(selected)
