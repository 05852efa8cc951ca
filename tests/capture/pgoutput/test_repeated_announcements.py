"""Announcements that say nothing new are left out, wherever batches are cut."""

from __future__ import annotations

import struct
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.capture.pgoutput.repeated_announcements import RepeatedAnnouncements


def _relation(relid: int, columns: bytes) -> bytes:
    return b"R" + struct.pack("!I", relid) + b"public\0t\0d" + columns


def _type(name: bytes) -> bytes:
    return b"Y" + struct.pack("!I", 600) + b"public\0" + name + b"\0"


_BEGIN, _INSERT, _COMMIT = b"B" + bytes(20), b"I" + bytes(8), b"C" + bytes(25)
_MOOD, _FEELING = _type(b"mood"), _type(b"feeling")
_A, _A_WIDER, _B = _relation(1, b"x"), _relation(1, b"xy"), _relation(2, b"z")

_SENT = [
    *(_BEGIN, _MOOD, _A, _INSERT, _COMMIT),
    *(_BEGIN, _MOOD, _A, _INSERT, _B, _INSERT, _COMMIT),
    *(_BEGIN, _FEELING, _A, _INSERT, _B, _A_WIDER, _INSERT, _FEELING, _A, _INSERT, _COMMIT),
    *(_BEGIN, _FEELING, _A, _INSERT, _COMMIT, _MOOD),
]
# the type's new name is news, though the Relation message is the same; so is the old form after another one
_KEPT = [
    *(_BEGIN, _MOOD, _A, _INSERT, _COMMIT),
    *(_BEGIN, _INSERT, _B, _INSERT, _COMMIT),
    *(_BEGIN, _FEELING, _A, _INSERT, _A_WIDER, _INSERT, _FEELING, _A, _INSERT, _COMMIT),
    *(_BEGIN, _INSERT, _COMMIT, _MOOD),
]


@given(st.sets(st.integers(1, len(_SENT) - 1)), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_only_news_is_kept(cuts: set[int], binary: pa.DataType) -> None:
    batches = [
        pa.record_batch([pa.array(_SENT[low:high], binary)], names=["data"])
        for low, high in pairwise([0, *sorted(cuts), len(_SENT)])
    ]
    given_out = [batch.column("data").to_pylist() for batch in RepeatedAnnouncements().left_out(batches)]
    assert [message for batch in given_out for message in batch] == _KEPT
