"""What one call has sent is cut where its windows end, however it is cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.capture.pgoutput.window_cuts import WindowCuts
from spark_jobs.logicalrep.lsn import Lsn
from tests.capture.pgoutput.packed_messages import (
    P8,
    S7,
    begin,
    change,
    commit,
    commit_prepared,
    emitted,
    relation,
    start,
    stream_commit,
    streamed,
)

# what each kind of event becomes, of which the first message has the LSN, and what may be sent before it
_EVENTS: dict[str, tuple[Callable[[int], list[bytes]], list[bytes]]] = {
    "plain": (
        lambda lsn: [begin(lsn), relation(1, 1), change("I", 1), emitted(9, transactional=True), commit(lsn)],
        [],
    ),
    "loose": (lambda lsn: [emitted(lsn, transactional=False)], []),
    # the M of a stream has an xid where a loose one has its LSN
    "streamed": (lambda lsn: [stream_commit(7, lsn)], [*S7[:-1], streamed(7, emitted(9, transactional=True)), b"E"]),
    "prepared": (lambda lsn: [commit_prepared(8, lsn)], P8),
    "short": (lambda _: [b"c12"], [start(7), b"E"]),
}


@given(
    st.lists(st.sampled_from(sorted(_EVENTS)), min_size=1, max_size=12),
    st.sets(st.integers(0x100, 0x100 + 12 * 8)),
    st.sets(st.integers(1, 80)),
)
def test_each_event_is_in_the_window_of_its_lsn(kinds: list[str], ends: set[int], cuts: set[int]) -> None:
    wires: list[bytes] = []
    lsns: dict[int, int] = {}  # of the messages that have one, by place
    for number, kind in enumerate(kinds):
        event, before = _EVENTS[kind]
        wires += before
        if kind != "short":
            lsns[len(wires)] = 0x100 + 8 * number
        wires += event(0x100 + 8 * number)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(wires)), len(wires)]
    whole = pa.array([b"before", *wires], pa.binary())[1:]
    batches = iter([pa.record_batch([whole[lo:hi]], names=["data"]) for lo, hi in pairwise(bounds)])
    window_cuts = WindowCuts()
    windows = [list(window_cuts.before(Lsn(end), batches)) for end in sorted(ends)]
    windows.append(list(window_cuts.rest(batches)))
    sent = [[message for batch in window for message in batch.column(0).to_pylist()] for window in windows]
    assert [message for window in sent for message in window] == wires
    place = 0
    for window, (lo, hi) in zip(sent, pairwise([0, *sorted(ends), 1 << 62]), strict=True):
        for _ in window:
            assert place not in lsns or lo <= lsns[place] < hi
            place += 1
