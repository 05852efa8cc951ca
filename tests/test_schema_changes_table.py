"""Every line of docs/schema-changes.md names a live test that compares the lake with the source, and the case of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# each compares tables with their source, row by row
COMPARISONS = {"compare", "verify", "source_rows", "assert_equal"}


def rows() -> list[list[str]]:
    """The cells of the table."""
    lines = (ROOT / "docs" / "schema-changes.md").read_text().splitlines()
    found = [line.strip("|").split("|") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in found[1:]]


def marks(module: ast.Module, function: ast.FunctionDef) -> set[str]:
    """The names of pytest's marks, of the function and of its whole module."""
    of_module = [
        statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
    ]
    text = " ".join(map(ast.unparse, [*of_module, *function.decorator_list]))
    return set(re.findall(r"pytest\.mark\.(\w+)", text))


def called(functions: dict[str, ast.FunctionDef], name: str) -> set[str]:
    """The names of what the function calls, itself and through other functions of its module."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        nodes = (node.func for node in ast.walk(functions[ahead.pop()]) if isinstance(node, ast.Call))
        new = {ast.unparse(node).rpartition(".")[2] for node in nodes} - found
        found |= new
        ahead += new & functions.keys()
    return found


def test_every_row_says_one_of_three_things() -> None:
    assert len(rows()) > 25
    for ddl, outcome, test in rows():
        assert ddl
        assert test
        assert outcome.startswith(("in place", "read again", "nothing")), ddl


@pytest.mark.parametrize("test", sorted({test.strip("`") for _, _, test in rows()}))
def test_every_test_exists_and_compares_the_lake_with_the_source(test: str) -> None:
    match = re.fullmatch(r'([\w/]+\.py)::(\w+)(?:\["(.+)"\])?', test)
    assert match is not None, test
    path, name, case = match.groups()
    text = (ROOT / "tests" / path).read_text()
    module = ast.parse(text)
    functions = {statement.name: statement for statement in module.body if isinstance(statement, ast.FunctionDef)}
    assert name in functions, test
    assert case is None or f'"{case}"' in text, test
    assert "postgres" in marks(module, functions[name]), test
    assert called(functions, name) & COMPARISONS, test
