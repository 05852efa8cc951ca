"""The table of docs/protocol.md is complete, and everything that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# https://www.postgresql.org/docs/13/logicaldecoding-output-plugin.html
OF_13 = (
    "startup_cb",
    "shutdown_cb",
    "begin_cb",
    "commit_cb",
    "change_cb",
    "truncate_cb",
    "filter_by_origin_cb",
    "message_cb",
)
# https://www.postgresql.org/docs/16/logicaldecoding-output-plugin.html, with what startup_cb is handed
OF_16 = (
    *OF_13,
    "filter_prepare_cb",
    "begin_prepare_cb",
    "prepare_cb",
    "commit_prepared_cb",
    "rollback_prepared_cb",
    "stream_start_cb",
    "stream_stop_cb",
    "stream_abort_cb",
    "stream_prepare_cb",
    "stream_commit_cb",
    "stream_change_cb",
    "stream_message_cb",
    "stream_truncate_cb",
    "output_type",
    "receive_rewrites",
)
# https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
MESSAGES = {
    "Begin": "B",
    "Message": "M",
    "Commit": "C",
    "Origin": "O",
    "Relation": "R",
    "Type": "Y",
    "Insert": "I",
    "Update": "U",
    "Delete": "D",
    "Truncate": "T",
    "Stream Start": "S",
    "Stream Stop": "E",
    "Stream Commit": "c",
    "Stream Abort": "A",
    "Begin Prepare": "b",
    "Prepare": "P",
    "Commit Prepared": "K",
    "Rollback Prepared": "r",
    "Stream Prepare": "p",
}
# https://www.postgresql.org/docs/current/protocol-logical-replication.html#PROTOCOL-LOGICAL-REPLICATION-PARAMS
OPTIONS = ("proto_version", "publication_names", "binary", "messages", "streaming", "two_phase", "origin")
TUPLE_KINDS = "nutb"


def rows() -> list[list[str]]:
    """The cells of the first table."""
    text = (ROOT / "docs" / "protocol.md").read_text().split("\n## ")[0]
    found = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in found[1:]]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


FIRST_CELLS = [row[0] for row in rows()]


def test_every_row_is_full() -> None:
    for row in rows():
        assert len(row) == 4, row
        assert all(row), row


@pytest.mark.parametrize("callback", OF_16)
def test_every_callback_has_a_row(callback: str) -> None:
    assert any(cell.startswith(f"`{callback}`") for cell in FIRST_CELLS)


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_has_a_row_with_its_letter(message: str) -> None:
    assert any(re.search(rf"`{message}` \({MESSAGES[message]}\b", cell) for cell in FIRST_CELLS)


def test_every_option_and_kind_of_column_has_a_row() -> None:
    for option in OPTIONS:
        assert any(cell.startswith(f"option `{option}`") for cell in FIRST_CELLS), option
    kinds = "".join(kinds for cell in FIRST_CELLS for kinds in re.findall(r"`TupleData` \((.*?)\)", cell))
    assert set(TUPLE_KINDS) <= set(kinds)


@pytest.mark.parametrize("place", sorted({place for row in rows() for place in named(row[1])}))
def test_every_place_in_the_source_exists(place: str) -> None:
    path, function = place.split(":")
    text = (ROOT / "spark_jobs" / path).read_text()
    assert re.search(rf"^\s*(?:def|class) {function}\b", text, re.MULTILINE), place


@pytest.mark.parametrize("test", sorted({test for row in rows() for test in named(row[3])}))
def test_every_test_exists(test: str) -> None:
    match = re.fullmatch(r"([\w/]+\.py)::(\w+)(?:\[(.+)\])?", test)
    assert match is not None, test
    path, function, case = match.groups()
    text = (ROOT / "tests" / path).read_text()
    assert f"def {function}(" in text, test
    assert case is None or f'"{case}"' in text, test
