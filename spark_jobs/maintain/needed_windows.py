"""The first landed window that is still needed, however old it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_jobs.configuration import Pipeline
from spark_jobs.lake.messages_state import MESSAGES_NAME, has_messages_table
from spark_jobs.snapshot.chunks.read_plan import ReadPlan, ReadRecord, plans
from spark_jobs.tables.followed_tables import all_followed_names
from spark_jobs.tables.ledger import Ledger


@dataclass(frozen=True)
class Needed:
    """Windows from ``ordinal`` on are needed. ``by`` names the table that is furthest behind; empty if only the last
    window is needed."""

    ordinal: int
    by: str = ""


def needed_windows(pipeline: Pipeline, ledger: Ledger) -> Needed:
    """A table needs the marker of the window that it shows, and the windows after it. A table without a snapshot, or
    that needs a new one, needs none, unless a snapshot is read in chunks now: then those since it was begun. A table
    that cannot be read may need all."""
    needs = [Needed(ledger.last.ordinal), *(Needed(0, f"{name}, which cannot be read") for name in ledger.errors)]
    needs += [Needed(state.ordinal, str(name)) for name, state in ledger.states.items() if not state.is_lost]
    needs += [Needed(plan.first_window, f"{plan.name}, which is read in chunks") for plan in _goes_on(pipeline, ledger)]
    if has_messages_table(pipeline):
        messages = ledger.state_of(MESSAGES_NAME)
        # a messages table that does not exist yet is built from everything in the change log
        needs.append(Needed(messages.ordinal if messages else 0, "the messages table"))
    return min(needs, key=lambda need: need.ordinal)


def _goes_on(pipeline: Pipeline, ledger: Ledger) -> Iterator[ReadPlan]:
    """The snapshots in chunks that the next run reads on. The records of all others are removed."""
    followed = all_followed_names(pipeline)
    for plan in plans(pipeline.lake):
        if plan.name in followed and plan.goes_on_from(ledger.states.get(plan.name)):
            yield plan
        elif plan.name not in ledger.errors:
            ReadRecord(pipeline.lake, plan.name).remove()
