"""What real servers sent, damaged: the columnar decoder accepts and reads what ``read_change`` does."""

from __future__ import annotations

import pytest

from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.messages import Change, Delete, Insert, Update
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from tests.at_night import at_night
from tests.damage import damages, recorded
from tests.decode.row_changes import RELID, decode, outcome
from tests.golden.scenario import themes
from tests.wire import without_stream_xid

pytestmark = pytest.mark.slow


LONG = ("toast", "types_binary")


@pytest.mark.parametrize("theme", [at_night(theme) if theme in LONG else theme for theme in themes()])
def test_damage_is_refused_by_both_or_read_alike(theme: str) -> None:
    for wire, width in row_changes(theme):
        assert decode([wire], width) == outcome([wire], width)
        accepted: list[bytes] = []
        for damaged in damages(wire):
            expected = outcome([damaged], width)
            if isinstance(expected, LogicalRepError):
                with pytest.raises(DecodeError) as refused:
                    decode([wire, damaged], width)
                assert f"change at 0/7#1 of public.t is not understood: {expected}" in str(refused.value)
            else:
                accepted.append(damaged)
        assert decode(accepted, width) == outcome(accepted, width)


def row_changes(theme: str) -> list[tuple[bytes, int]]:
    """One change for each layout of tuples that a server sent for the theme, as of relation RELID; and its width."""
    found: dict[tuple[object, ...], tuple[bytes, int]] = {}
    for wire in recorded(theme):
        data = without_stream_xid(wire.data) if wire.in_block else wire.data
        if data[:1] in (b"I", b"U", b"D"):
            data = data[:1] + RELID.to_bytes(4, "big") + data[5:]
            change = read_message(data)
            assert isinstance(change, (Insert, Update, Delete))
            layout = data[:1], data[5:6], *(type(value) for value in _values(change))
            found.setdefault(layout, (data, int.from_bytes(data[6:8], "big")))
    return list(found.values())


def _values(change: Change) -> list[object]:
    rows = [change.new] if isinstance(change, Insert) else [change.old_key, change.old_tuple]
    if isinstance(change, Update):
        rows.append(change.new)
    return [value for row in rows if row is not None for value in row]


def test_the_recordings_have_every_form_of_row_change() -> None:
    forms = {data[:1] + data[5:6] for theme in themes() for data, _ in row_changes(theme)}
    assert forms == {b"IN", b"UN", b"UK", b"UO", b"DK", b"DO"}
