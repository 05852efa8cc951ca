"""From which counts and sizes on a table is written in which way: ``writers/write_choice.py`` decides by these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WriteLimits:
    """Bytes and rows; nobody configures them. Tests hand in others.

    ``on_driver_bytes``, ``on_driver_rows``: the most bytes of messages of one table that the driver decodes, and the
    most changes, each of which takes two or three hundred bytes besides its message; larger ranges go to executors.
    ``in_turn_bytes``: with the engine ``auto``, larger ranges are decoded on the driver, too, so much at a time, if the
    table's files have ``in_passing_bytes`` or less. These are written again each time, but that takes a second or two:
    a backlog of 1.9 GiB, in windows of 256 MiB, took 27 s so, and 60 by executors.
    ``wide_row_bytes``: rows of at least that size are few for their bytes, and costly to hand to a JVM: up to
    ``wide_rows_factor`` times as many bytes of them stay on the driver (a gibibyte: no value of PostgreSQL is larger).
    ``read_ahead_bytes``: for as many bytes of messages Spark reads the table's log while the driver decodes; fewer take
    a tenth of a second. ``compact_every``: Delta versions between two compactions: each commit adds a file or two.

    ``rewritten_rows``, ``rewritten_share``: so many changed rows, and such a share of the table's, are written with the
    whole table; for a smaller part, MERGE writes much less. ``streamed_share``: the same share, where this process
    writes: 900,000 changes of ten million rows took it 4 s, and Spark's MERGE 12 to 16. ``broadcast_keys``: the most
    keys that Spark's rewrite sends to all tasks, a hundred bytes each at most; beyond that Spark decides how to join.

    ``small_bytes``: data files of that size are rewritten by this process in half a second. ``many_files``: each of
    its appends adds a file; a small table with so many is rewritten as one. ``rows_of_file``: fewer are not worth a
    file of their own. ``streamed_bytes``: files of that size are written anew by this process in a minute or two, row
    group by row group; ``in_passing_bytes``: small ones, after an append, in seconds. ``in_memory_bytes``: of rows that
    it cannot take one by one: those of a small table with a new snapshot; with commit columns but without a key, those
    that are equal to one that goes.

    ``whole_files_bytes``: up to that size, Spark's MERGE rewrites whole files, which takes one join less than deletion
    vectors. ``interpreted_bytes``: up to that, it interprets expressions, too. Ten changes of 1,000 rows took 3.3 CPU
    seconds with deletion vectors and compiled code, and 1.5 like this; ten of 30,000 rows (1.4 MB) 3.4 and 1.9.

    ``little_bytes``: of changes, ``little_tables``: of the tables that they are merged into; up to both, the JVM need
    not become fast. 900,000 changes of a table of a million rows took 15.6 s with a JVM that compiles its code once,
    and 17.1 s with the usual one, which takes the lead later.
    """

    on_driver_bytes: int = 128 << 20
    on_driver_rows: int = 2_000_000
    in_turn_bytes: int = 256 << 20
    wide_row_bytes: int = 16 << 10
    wide_rows_factor: int = 8
    read_ahead_bytes: int = 16 << 20
    compact_every: int = 16

    rewritten_rows: int = 50_000
    rewritten_share: float = 0.25
    streamed_share: float = 0.05
    broadcast_keys: int = 1_000_000

    small_bytes: int = 32 << 20
    many_files: int = 16
    rows_of_file: int = 50_000
    streamed_bytes: int = 1 << 30
    in_passing_bytes: int = 128 << 20
    in_memory_bytes: int = 256 << 20

    whole_files_bytes: int = 8 << 20
    interpreted_bytes: int = 2 << 20

    little_bytes: int = 128 << 20
    little_tables: int = 256 << 20

    def are_for_driver(self, rows: int, size: int) -> bool:
        """Whether the driver decodes so many changes, which take ``size`` bytes in the change log."""
        if size <= self.on_driver_bytes:
            return rows <= self.on_driver_rows
        return rows * self.wide_row_bytes <= size <= self.wide_rows_factor * self.on_driver_bytes

    def are_for_a_turn(self, rows: int, size: int) -> bool:
        """Whether the driver decodes so many changes as a part of more, where it writes them itself."""
        return size <= self.in_turn_bytes and rows <= self.on_driver_rows

    def is_little_to_read(self, in_files: int, rows: int, size: int) -> bool:
        """Whether ``deltalake`` may read or rewrite data files of ``in_files`` bytes for so many changed ``rows`` of
        ``size`` bytes."""
        return in_files <= (max(self.small_bytes, size) if size >= rows * self.wide_row_bytes else self.small_bytes)
