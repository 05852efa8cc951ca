"""docs/troubleshooting.md: each message is one that the source produces, and each class of errors has one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_jobs.errors import CdcError

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "troubleshooting.md"
VARIES = "…"
_LEAST_LETTERS = 6  # fewer would be found in some literal or other


@dataclass(frozen=True)
class Literal:
    """A string of the source, ``VARIES`` for what is filled in, and the names in the function that it stands in."""

    text: str
    names: frozenset[str]


def rows() -> Iterator[list[str]]:
    """The cells of the tables of messages."""
    for table in re.findall(
        r"^\| the message \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        yield from ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())


def literals() -> Iterator[Literal]:
    for folder in ("spark_jobs", "cdc_assets"):
        for path in (ROOT / folder).rglob("*.py"):
            yield from _literals(ast.parse(path.read_text(encoding="utf-8")), frozenset())


def _literals(node: ast.AST, names: frozenset[str]) -> Iterator[Literal]:
    if isinstance(node, ast.FunctionDef):
        names = frozenset(name.id for name in ast.walk(node) if isinstance(name, ast.Name))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else VARIES for part in node.values)
        yield Literal("".join(map(str, parts)), names)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield Literal(node.value.replace("\\", ""), names)  # some are patterns
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from _literals(child, names)


LITERALS = tuple(literals())
MESSAGES = sorted({message for row in rows() for message in re.findall(r"`([^`]+)`", row[0])})


def produced(message: str) -> list[Literal]:
    """The literals that hold the message's fixed words, in order."""
    pattern = re.compile(".+".join(map(re.escape, message.strip(f"{VARIES} ").split(VARIES))), re.DOTALL)
    return [literal for literal in LITERALS if pattern.search(literal.text)]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_source(message: str) -> None:
    assert len(re.findall(r"[^\W_]", message)) >= _LEAST_LETTERS
    assert produced(message) != []


def test_every_message_is_explained() -> None:
    assert len(MESSAGES) > 100
    assert [row for row in rows() if not all(row) or "`" not in row[0]] == []


def test_every_class_of_errors_has_a_message() -> None:
    named = {name for message in MESSAGES for literal in produced(message) for name in literal.names}
    assert {kind.__name__ for kind in _below(CdcError)} - named == set()


def _below(kind: type[CdcError]) -> Iterator[type[CdcError]]:
    for below in kind.__subclasses__():
        if below.__module__ == CdcError.__module__:
            yield from (below, *_below(below))
