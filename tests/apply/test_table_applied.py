"""The results of a table's rounds, merged into one: its word is that of what this call has done."""

from __future__ import annotations

import pytest

from spark_jobs.apply.table_applied import Outcome, TableApplied
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.qualified_name import QualifiedName


@pytest.mark.parametrize(
    ("rounds", "merged"),
    [
        (("applied", "nothing to apply"), "applied"),
        (("applied", "already applied"), "applied"),  # another process was quicker with the rest
        (("nothing to apply", "already applied"), "already applied"),
        (("already applied", "applied", "already applied"), "applied"),
        (("already applied", "nothing to apply"), "already applied"),
        (("applied", "stopped"), "stopped"),
        (("nothing to apply", "nothing to apply"), "nothing to apply"),
    ],
)
def test_the_outcome_of_several_rounds(rounds: tuple[Outcome, ...], merged: Outcome) -> None:
    done: TableApplied | None = None
    for number, outcome in enumerate(rounds):
        bounds = number, number, Lsn(number), Lsn(number + 1)
        written = int(outcome == "applied")
        done = TableApplied(QualifiedName("public", "t"), *bounds, outcome, rows_written=written).after(done)
    assert done is not None
    assert (done.outcome, done.first, done.last) == (merged, 0, len(rounds) - 1)
    assert done.rows_written == rounds.count("applied")
