"""The connections and the state that capturing needs, once log and slot are known to belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache

from adbc_driver_postgresql import dbapi

from spark_jobs.capture.continuity import following_slot, slot_identity
from spark_jobs.capture.landed_again import check_landed_again
from spark_jobs.change_log.window_marker import SlotIdentity, WindowMarker
from spark_jobs.configuration import Pipeline
from spark_jobs.errors import SlotError
from spark_jobs.lake.drop_mark import landed_end
from spark_jobs.postgres.bulk_read import bulk_connection
from spark_jobs.postgres.connection import Connection, connected, conninfo
from spark_jobs.postgres.flushed_wal import SourceClock, source_clock
from spark_jobs.postgres.locks import slot_lock
from spark_jobs.postgres.slot import Slot, advance_slot
from spark_jobs.tables.at_source import AtSource
from spark_jobs.tables.masked_columns import masked_table_facts
from spark_jobs.tables.selected_columns import require_withheld


@dataclass(frozen=True)
class CaptureSession:
    """The connections and the state that capturing needs. ``bulk`` connects with its first call, and so does
    ``second_bulk``, which reads the second half of a large window. ``checkpoint`` is the log's last marker. ``clock``:
    of a pipeline with time partitions. ``on_batch`` is called after each batch of a window, with the number of its
    messages so far."""

    at_source: AtSource
    bulk: Callable[[], dbapi.Connection]
    second_bulk: Callable[[], dbapi.Connection]
    identity: SlotIdentity
    checkpoint: WindowMarker
    slot: Slot
    clock: SourceClock | None = None
    on_batch: Callable[[int], None] = lambda _: None

    @property
    def pipeline(self) -> Pipeline:
        return self.at_source.pipeline

    @property
    def control(self) -> Connection:
        return self.at_source.connection

    @property
    def next_ordinal(self) -> int:
        """That of the window which is landed next."""
        return self.checkpoint.ordinal + 1


@contextmanager
def capture_session(pipeline: Pipeline) -> Iterator[CaptureSession]:
    """Connect, take the slot's lock and check that log and slot belong together. Advances a slot behind the log."""
    source = pipeline.source
    with connected(source.dsn) as control, slot_lock(control, source.slot):
        checkpoint = landed_end(pipeline.lake)
        if checkpoint is None:
            raise SlotError(
                f"there is no change log yet for slot {source.slot}",
                hint="`postgres-cdc sync` creates the slot and the change log",
            )
        identity = slot_identity(AtSource(control, pipeline)).following(checkpoint.identity)
        at_source = AtSource(control, pipeline).now()
        require_withheld(at_source)
        masked_table_facts(at_source)  # only to raise before anything is read
        slot = following_slot(at_source, checkpoint, identity)
        with ExitStack() as connections:
            # half the time of a run that finds no window
            bulk, second_bulk = (
                cache(lambda: connections.enter_context(bulk_connection(conninfo(source.dsn)))) for _ in range(2)
            )
            if slot.lsn < checkpoint.window.hi:
                # a crash of ours between landing and advancing, or a crash of the server that lost the advance
                check_landed_again(at_source, bulk(), checkpoint, slot)
                slot = replace(slot, confirmed_flush_lsn=advance_slot(control, source.slot, checkpoint.window.hi))
            clock = source_clock(control) if pipeline.periods else None
            yield CaptureSession(at_source, bulk, second_bulk, identity, checkpoint, slot, clock)
