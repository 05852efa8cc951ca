"""Every line of docs/schema-changes.md names a test that exists, and the case of it that shows the line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def rows() -> list[list[str]]:
    """The cells of the table."""
    lines = (ROOT / "docs" / "schema-changes.md").read_text().splitlines()
    found = [line.strip("|").split("|") for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in found[1:]]


def test_every_row_says_one_of_three_things() -> None:
    assert len(rows()) > 25
    for ddl, outcome, test in rows():
        assert ddl
        assert test
        assert outcome.startswith(("in place", "read again", "nothing")), ddl


@pytest.mark.parametrize("test", sorted({test.strip("`") for _, _, test in rows()}))
def test_every_test_exists(test: str) -> None:
    match = re.fullmatch(r'([\w/]+\.py)::(\w+)(?:\["(.+)"\])?', test)
    assert match is not None, test
    path, function, case = match.groups()
    text = (ROOT / "tests" / path).read_text()
    assert f"def {function}(" in text, test
    assert case is None or f'"{case}"' in text, test
