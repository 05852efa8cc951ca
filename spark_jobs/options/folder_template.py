"""Where the tables of a lake are: from a table's name to its folder, and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from spark_jobs.qualified_name import QualifiedName, percent_encoded

# as a name can be in a folder
_NAME = r"[A-Za-z0-9_%-]+"
UNREPRESENTABLE_FOLDER = "_unrepresentable"
_OWN_FOLDERS = ("change_log", "cuts", "_staging", "_being_dropped.json", UNREPRESENTABLE_FOLDER)
MESSAGES_FOLDER = "tables/_messages"


@dataclass(frozen=True)
class FolderTemplate:
    """The folders of tables below ``lake.path``: ``text``, in which ``{schema}`` and ``{table}`` stand for their names.
    A text without ``{schema}`` is for the tables of one schema, ``schema``.

    In a name, every character but letters, digits, ``_`` and ``-`` is percent-encoded; where the folder could then be
    another table's or one of the lake's own, every character is. So two tables never have one folder, and each folder
    tells its table's name. Raises ValueError.

    >>> template = FolderTemplate("bronze/{schema}__{table}")
    >>> template.folder(QualifiedName("public", "Order Items"))
    'bronze/public__Order%20Items'
    >>> template.folder(QualifiedName("a__b", "c"))
    'bronze/%61%5F%5F%62__%63'
    """

    text: str = "tables/{schema}/{table}"
    schema: str = ""

    def __post_init__(self) -> None:
        literal = re.sub(r"\{(?:schema|table)\}", "", self.text)
        if other := re.search(r"[^A-Za-z0-9_./-]", literal):
            raise ValueError(f"holds {other[0]}; expected letters, digits, _, -, ., /, {{schema}} and {{table}}")
        if not all(segment and not segment.startswith(".") for segment in self.segments):
            raise ValueError("expected folders below lake.path, none of them empty or with a dot at its beginning")
        if self.text.count("{table}") != 1 or self.text.count("{schema}") > 1:
            raise ValueError("expected {table} once, and {schema} at most once")
        if re.search(r"\}[A-Za-z0-9]*\{", self.text):
            raise ValueError("expected one of / . _ - between {schema} and {table}: two tables could share a folder")
        if not _is_free(self.text) or self.text.startswith(f"{MESSAGES_FOLDER}/"):
            raise ValueError("is where the lake has files of its own; choose another folder")

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.text.split("/"))

    def takes(self, name: QualifiedName) -> bool:
        """Whether the table may be in the lake."""
        return "{schema}" in self.text or name.nspname == self.schema

    def folder(self, name: QualifiedName) -> str:
        """The table's folder, below ``lake.path``."""
        assert self.takes(name), f"{name} is not of schema {self.schema}"
        plain = self._filled(name, percent_encoded)
        return plain if _is_free(plain) and self._read(plain) == name else self._filled(name, _wholly_encoded)

    def name_of(self, folder: str) -> QualifiedName | None:
        """The table whose folder below ``lake.path`` this is; None if no table has it."""
        name = self._read(folder)
        return name if name is not None and self.folder(name) == folder else None

    def __str__(self) -> str:
        return f"{self.text} for schema {self.schema}" if self.schema else self.text

    def _filled(self, name: QualifiedName, encoded: Callable[[str], str]) -> str:
        return self.text.replace("{schema}", encoded(name.nspname)).replace("{table}", encoded(name.relname))

    def _read(self, folder: str) -> QualifiedName | None:
        if (match := self._pattern.fullmatch(folder)) is None:
            return None
        names = {"schema": self.schema, **{field: unquote(text) for field, text in match.groupdict().items()}}
        return QualifiedName(names["schema"], names["table"])

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\\{(schema|table)\\}", rf"(?P<\1>{_NAME}?)", re.escape(self.text)))


def _is_free(folder: str) -> bool:
    segments = folder.split("/")
    # a folder named _delta_log would turn its parent folder into a Delta table
    is_taken = segments[0] in _OWN_FOLDERS or "_delta_log" in segments
    return not is_taken and folder != MESSAGES_FOLDER and not MESSAGES_FOLDER.startswith(f"{folder}/")


def _wholly_encoded(name: str) -> str:
    return "".join(f"%{byte:02X}" for byte in name.encode())


DEFAULT_FOLDERS = FolderTemplate()
