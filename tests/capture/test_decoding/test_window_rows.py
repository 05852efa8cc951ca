"""Lines to rows without a server: what a live one cannot be made to send, and batches cut anywhere."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.capture.test_decoding.line_tables import LineTable, LineTables
from spark_jobs.capture.test_decoding.window_rows import LINE_SPOOL_SCHEMA, LineWindowRows
from spark_jobs.capture.transaction_spool import TransactionSpool
from spark_jobs.errors import CdcError
from spark_jobs.logicalrep.lsn import Lsn, Window


def test_lines_that_make_no_transactions_are_refused() -> None:
    for lines, message in (
        (["streaming change for TXN 7"], "never sends its changes"),
        (["BEGIN 7", "HELLO"], "a line begins with 'H'"),
        (["BEGIN 7", "COMMIT 8 (at 2024-01-01 00:00:00+00)"], "different transactions"),
        (["BEGIN 7", "COMMIT 7"], "lacks the xid or the time"),
        (["BEGIN 7"], "no COMMIT"),
        (["COMMIT 7 (at 2024-01-01 00:00:00+00)"], "outside a transaction"),
        (["BEGIN 7", "PREPARE TRANSACTION 'g', txid 7"], "the slot is two-phase"),
        (["COMMIT PREPARED 'g', txid 7 (at 2024-01-01 00:00:00+00)"], "the slot is two-phase"),
    ):
        with pytest.raises(CdcError, match=message):
            list(rows_of().rows([batch(lines)]))


def batch(lines: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(101, 101 + len(lines))), pa.array(lines)], names=["lsn", "data"])


def rows_of() -> LineWindowRows:
    followed = LineTable(5, ("public", "t"), b"R" + (5).to_bytes(4, "big") + b"public\0t\0d\0\0")
    tables = LineTables({("public", "t"): followed}, (), lambda _: False)
    return LineWindowRows(3, Window(Lsn(100), Lsn(900)), lambda: tables, TransactionSpool(schema=LINE_SPOOL_SCHEMA))


def test_two_phase_lines_take_effect_at_commit_prepared() -> None:
    lines = [
        "BEGIN 7",
        "table public.t: INSERT: id[integer]:1",
        "PREPARE TRANSACTION 'a', txid 7 (at 2024-01-01 00:00:00+00)",
        "BEGIN 8",
        "table public.t: INSERT: id[integer]:2",
        "PREPARE TRANSACTION 'b', txid 8 (at 2024-01-01 00:00:00+00)",
        "ROLLBACK PREPARED 'b', txid 8 (at 2024-01-01 00:00:00+00)",
        "BEGIN 9",
        "table public.t: DELETE: id[integer]:3",
        "COMMIT 9 (at 2024-01-02 00:00:00+00)",
        "COMMIT PREPARED 'a', txid 7 (at 2024-01-03 00:00:00.5+00)",
    ]
    for size in (1, 2, 3, len(lines)):
        assembled = rows_of()
        whole = batch(lines)
        batches = [whole.slice(at, size) for at in range(0, len(lines), size)]
        rows = [row for each in assembled.rows(batches) for row in each.to_pylist() if row["kind"] in "ID"]
        assert [
            (row["commit_lsn"], row["xid"], row["kind"], row["ordinal"], str(row["commit_time"])) for row in rows
        ] == [
            (109, 9, "D", 0, "2024-01-02 00:00:00+00:00"),
            (110, 7, "I", 0, "2024-01-03 00:00:00.500000+00:00"),
        ]
        assert assembled.transactions == 2
