"""Damaged messages, of every kind and of real servers: a typed error or what the bytes say, never anything else."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.test_decoding.read_line import read_line
from tests.damage import Wire, damages, every_kind, recorded
from tests.golden.golden_file import recordings
from tests.golden.scenario import themes
from tests.wire import write_message


def test_every_kind_of_message() -> None:
    kinds = every_kind()
    assert {wire.data[:1] for wire in kinds} == {bytes([kind]) for kind in b"BCORYIUDTMSEcAbPKrp"}
    assert assert_typed(kinds) > 0


@pytest.mark.parametrize("theme", themes())
def test_every_message_a_server_sent(theme: str) -> None:
    assert assert_typed(recorded(theme)) > 0


@pytest.mark.parametrize("theme", themes())
def test_every_line_a_server_sent(theme: str) -> None:
    """test_decoding: a line has more than one way to be written, so only its errors are looked at."""
    lines = {
        row.data for recording in recordings(theme) if recording.plugin == "test_decoding" for row in recording.rows
    }
    refused = 0
    for line in lines:
        read_line(line)
        for damaged in damages(line):
            try:
                read_line(damaged)
            except LogicalRepError:
                refused += 1
    assert (refused > 0) == bool(lines), "no other theme than types_binary has none"


def assert_typed(wires: Iterable[Wire]) -> int:
    """How many of the damaged messages were read, as what they then say."""
    read = 0
    for wire in wires:
        assert write_message(wire.read(wire.data)) == wire.data
        for damaged in damages(wire.data):
            try:
                message = wire.read(damaged)
            except LogicalRepError:
                continue
            assert write_message(message) == damaged
            read += 1
    return read
