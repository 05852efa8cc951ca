"""Which landed transactions a snapshot shows, by IDs of 32 bits, which have started anew several times."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.snapshot.chunks.transactions_seen import TransactionsSeen

_HALF = (1 << 31) - 1


@given(
    xmax=st.integers(min_value=1 << 32, max_value=1 << 40),
    away=st.lists(st.integers(min_value=-_HALF, max_value=_HALF), min_size=1, max_size=20),
    running=st.sets(st.integers(min_value=1, max_value=1000)),
)
def test_xids_are_compared_as_if_they_had_64_bits(xmax: int, away: list[int], running: set[int]) -> None:
    in_progress = frozenset(xmax - each for each in running)
    whole = [xmax + each for each in [*away, *(-each for each in running)]]
    seen = TransactionsSeen(xmax, in_progress)
    found = seen.are_unseen(np.array([xid % (1 << 32) for xid in whole], dtype=np.int64))
    assert found.tolist() == [xid >= xmax or xid in in_progress for xid in whole]
