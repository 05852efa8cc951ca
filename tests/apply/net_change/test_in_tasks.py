"""The distributed net change equals the sequential one, whatever the split, and says when it cannot be used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark.cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spark_jobs
from spark_jobs.apply.net_change.in_tasks import (
    TaskStep,
    final_net,
    ordered_net,
    partial_net,
)
from spark_jobs.apply.net_change.net_change import net_change
from spark_jobs.apply.net_change.net_rules import NetRules
from spark_jobs.apply.net_change.truncates import truncations
from spark_jobs.errors import DecodeError
from spark_jobs.logicalrep.messages import UNCHANGED_TOAST, Truncate, Update
from spark_jobs.logicalrep.relation import fingerprint
from spark_jobs.schema.net_columns import arrow_schema
from tests.histories import RELID, SHAPE, History, applied, histories, log_rows, mapped, relation_message, typed

WIRE = relation_message("d")
VERSION = fingerprint(WIRE)
RULES = NetRules(SHAPE, mapped({VERSION: WIRE}))
PARTIAL = arrow_schema(partial_net(RULES).fields)


def distributed(history: History, tasks: list[pa.Table], partitions: int) -> tuple[pa.Table, bool]:
    """As Spark does it, and with the fallback the contract asks for."""
    rules = NetRules(SHAPE, history.relations)
    partial = partial_net(rules)
    outcome = [batch for task in tasks for batch in partial(iter(task.to_batches(max_chunksize=4)))]
    rows = pa.Table.from_batches(outcome, schema=PARTIAL)
    if any(rows.column("leans").to_pylist()):
        return run(ordered_net(rules), history.rows), True
    by_key = [hash(key) % partitions for key in rows.column("key").to_pylist()]
    final = final_net(rules)
    parts = [rows.filter(pa.array([where == part for where in by_key], pa.bool_())) for part in range(partitions)]
    return pa.concat_tables([run(final, part) for part in parts]), False


def run(function: TaskStep, rows: pa.Table) -> pa.Table:
    return pa.Table.from_batches(function(iter(rows.to_batches(max_chunksize=5))), schema=arrow_schema(function.fields))


def as_set(rows: pa.Table) -> set[tuple[object, ...]]:
    return {tuple(row.values()) for row in rows.to_pylist()}


@pytest.mark.slow
@settings(max_examples=100)
@given(histories(truncates=False), st.data())
def test_equals_the_sequential_one(history: History, data: st.DataObject) -> None:
    size = len(history.rows)
    where = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    tasks = [history.rows.filter(pa.array([task == its for its in where], pa.bool_())) for task in range(3)]
    rows, _ = distributed(history, tasks, partitions=data.draw(st.integers(1, 3)))
    assert as_set(rows) == as_set(run(ordered_net(NetRules(SHAPE, history.relations)), history.rows))
    assert applied(typed(history.before), rows, truncated=False) == typed(history.after)
    sequential = net_change(history.rows, NetRules(SHAPE, history.relations))
    assert all(rows.column("fresh").to_pylist()) == sequential.insert_only


@pytest.mark.slow
@given(histories(), st.data())
def test_only_changes_after_a_truncate_count(history: History, data: st.DataObject) -> None:
    rules = NetRules(SHAPE, history.relations, truncates=truncations(history.rows, SHAPE))
    partial = partial_net(rules)
    cut = data.draw(st.integers(0, len(history.rows)))
    tasks = (history.rows.slice(0, cut), history.rows.slice(cut))
    rows = pa.Table.from_batches([b for task in tasks for b in partial(iter(task.to_batches()))], schema=PARTIAL)
    if any(rows.column("leans").to_pylist()):
        net = run(ordered_net(rules), history.rows)
    else:
        net = run(final_net(rules), rows)
    if rules.truncated:
        # what the table had before the range is gone, and a delete of it with it
        net = net.filter(pa.array([op == 1 for op in net.column("op").to_pylist()], pa.bool_()))
    assert applied(typed(history.before), net, truncated=rules.truncated) == typed(history.after)


def test_a_task_drops_superseded_changes() -> None:
    updates = [Update(RELID, None, None, (b"1", b"", str(number).encode(), None, None)) for number in range(100)]
    rows = log_rows(updates, VERSION)
    kept = list(partial_net(RULES)(iter(rows.to_batches())))
    assert [batch.column("commit_lsn").to_pylist() for batch in kept] == [[1, 100]]


LEANING = Update(
    RELID, (b"1", b"", None, None, None), None, (b"2", b"", None, UNCHANGED_TOAST, None)
)  # the old key's doc goes with the row


def test_a_leaning_move_is_flagged_and_the_final_step_gives_nothing_but_the_flag() -> None:
    partial = pa.Table.from_batches(partial_net(RULES)(iter(log_rows([LEANING], VERSION).to_batches())))
    assert partial.column("leans").to_pylist() == [False, True]
    (row,) = run(final_net(RULES), partial).to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {"leans": True}


def test_a_truncate_that_was_not_announced_is_refused() -> None:
    rows = log_rows([Truncate((RELID,), cascade=False, restart_identity=False)], VERSION)
    with pytest.raises(DecodeError):
        run(ordered_net(RULES), rows)


def test_no_rows_at_all() -> None:
    none: list[pa.RecordBatch] = []
    unknown = NetRules(SHAPE, {})
    assert list(partial_net(unknown)(iter(none))) == []
    assert sum(map(len, final_net(unknown)(iter(none)))) == 0
    assert sum(map(len, ordered_net(unknown)(iter(none)))) == 0


def test_executors_need_only_arrow_and_numpy() -> None:
    """What a worker unpickles must import nothing that is not on every Spark executor."""
    program = (
        "import sys, spark_jobs.apply.net_change.in_tasks;"
        "print(sorted({'psycopg', 'pydantic', 'deltalake', 'pyspark', 'dagster', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_worker_without_this_package_runs_what_it_is_sent(tmp_path: Path) -> None:
    """By value, as the session ships it: the worker has no ``spark_jobs`` to import."""
    rows = log_rows([Update(RELID, None, None, (b"1", b"", b"7", None, None))], VERSION)
    program = "import sys; sys.modules['spark_jobs'] = None; import pickle, pyarrow as pa;"
    program += "partial, final, rows = pickle.load(open(sys.argv[1], 'rb'));"
    program += "print([b.column('v2').to_pylist() for b in final(partial(iter(rows.to_batches())))])"
    pyspark.cloudpickle.register_pickle_by_value(spark_jobs)  # type: ignore[no-untyped-call]
    try:
        functions = partial_net(RULES), final_net(RULES)
        (tmp_path / "shipped").write_bytes(pyspark.cloudpickle.dumps((*functions, rows)))  # type: ignore[no-untyped-call]
    finally:
        pyspark.cloudpickle.unregister_pickle_by_value(spark_jobs)  # type: ignore[no-untyped-call]
    command = [sys.executable, "-c", program, str(tmp_path / "shipped")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == "[[7]]", done.stderr
