"""How much of a table is read, from what is seen of the sessions that read it."""

from __future__ import annotations

from spark_jobs.snapshot.range_read import RangeQuery
from spark_jobs.snapshot.read_progress import TableProgress

# four tasks of two ranges of a hundred bytes, labelled by task and range
TASKS = [[RangeQuery("t", "", "", f"{task}/{place}", 100) for place in (0, 1)] for task in range(4)]


def test_a_table_from_its_first_range_to_its_last() -> None:
    table = TableProgress(TASKS)
    assert table.bytes_read({}) == 0, "nothing has begun"
    assert table.bytes_read({"0/0": 0, "1/0": 30}) == 30
    assert table.bytes_read({"0/1": 20, "1/0": 90}) == 210, "a task reads its ranges one after the other"
    assert table.bytes_read({"0/1": 70, "1/1": 5}) == 275
    assert table.bytes_read({"2/0": 0, "3/0": 0}) == 400, "tasks begin in their order: the first two have ended"
    assert table.bytes_read({"3/1": 50}) == 750, "a range that was too short to be seen has been read"
    assert table.bytes_read({}) == 800


def test_what_is_sent_counts_up_to_the_size_of_its_range() -> None:
    """Stored values may be compressed."""
    assert TableProgress(TASKS).bytes_read({"0/0": 1_000}) == 100


def test_a_task_that_is_tried_again_has_not_ended() -> None:
    table = TableProgress(TASKS)
    assert table.bytes_read({"1/1": 0}) == 300
    assert table.bytes_read({"0/0": 10, "1/1": 0}) == 110


def test_sessions_of_others_do_not_count() -> None:
    assert TableProgress(TASKS).bytes_read({"9/0": 10}) == 0
