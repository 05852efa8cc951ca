"""Where the fuzzer starts: the golden files, and what the tests write. One file per seed, its target first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, BinaryValue, Change, Delete, Insert, TupleData, Update
from tests.decode.binary_values import RECORDED
from tests.decode.row_changes import RELID
from tests.decode.row_lines import FINE, MOVED
from tests.fuzz.targets import (
    BINARY_TYPES,
    MAX_WIDTH,
    READ_OPTIONS,
    TARGETS,
    binary_values,
    both_assemblies,
    both_decoders,
    both_line_decoders,
    both_message_readers,
    one_line,
    one_message,
    packed,
)
from tests.golden.golden_file import Recording, recordings
from tests.golden.read_recordings import read_options
from tests.reference.transaction import ReadOptions
from tests.wire import write_message

_LONGEST_WINDOW = 4000  # bytes: a longer seed teaches the fuzzer nothing that a shorter one does not


def write_seeds(folder: Path) -> int:
    """Put every seed into the folder; the name is the content's digest. Returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {bytes([TARGETS.index(target)]) + data for target, data in _seeds()}
    for seed in seeds:
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    return len(seeds)


def _seeds() -> Iterator[tuple[object, bytes]]:
    for recording in recordings():
        if recording.plugin == "pgoutput":
            yield from _of_pgoutput(recording)
        else:
            for row in recording.rows:
                yield one_line, row.data
    widest: TupleData = (b"1", None, UNCHANGED_TOAST, BinaryValue(b"\0\1"))
    for width in range(len(widest) + 1):
        new = widest[:width]
        changes: list[Change] = [Insert(RELID, new), Update(RELID, new, None, new), Delete(RELID, None, new)]
        yield both_decoders, bytes([width]) + packed(map(write_message, changes))
    deleted = b"table public.t: DELETE: id[bigint]:1"
    yield both_line_decoders, packed([FINE, MOVED, deleted])
    yield both_line_decoders, packed([MOVED])
    for typid, value, _ in RECORDED:
        yield binary_values, bytes([BINARY_TYPES.index(typid)]) + packed([bytes.fromhex(value)])


def _of_pgoutput(recording: Recording) -> Iterator[tuple[object, bytes]]:
    options = read_options(recording)
    in_block = False
    for row in recording.rows:
        kind = row.data[:1]
        in_block = kind == b"S" or (in_block and kind != b"E")
        yield one_message, bytes([options.proto_version - 1 | (in_block and kind != b"S") << 2]) + row.data
        if kind == b"M" and not in_block:
            yield both_message_readers, row.data
        width = int.from_bytes(row.data[6:8], "big")
        if kind in b"IUD" and width < MAX_WIDTH and not in_block:
            change = kind + RELID.to_bytes(4, "big") + row.data[5:]
            yield both_decoders, bytes([width]) + packed([change])
    window = packed(row.data for row in islice(recording.rows, 60))
    if len(window) < _LONGEST_WINDOW:
        yield both_assemblies, bytes([_like(options)]) + window


def _like(options: ReadOptions) -> int:
    """The first of the fuzzed options that takes everything these bring."""
    enough = (
        index
        for index, candidate in enumerate(READ_OPTIONS)
        if candidate.proto_version >= options.proto_version
        and (candidate.streaming != "off" or options.streaming == "off")
        and candidate.two_phase >= options.two_phase
    )
    return next(enough)
