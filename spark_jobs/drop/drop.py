"""Removes what a pipeline has made: slot, publication, and on request the lake.

The order makes it safe to stop at any step. The slot is dropped first, by its name: it fills the source's disk. Then
the publication, whose comment tells whose the slot is. Then a mark is written to the lake, and its tables are removed,
the change log last. Until the mark is written, ``sync`` finds a change log without its slot; from then on, it finds the
mark. In both cases it begins no new log among the remains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from spark_jobs.change_log.log import ChangeLog
from spark_jobs.configuration import Lake, Pipeline
from spark_jobs.drop.drop_report import DropPlan, DropReport
from spark_jobs.drop.lake_side import (
    LakeSide,
    find_lake_side,
    remove_empty_lake_folders,
    remove_part,
)
from spark_jobs.drop.source_side import PublicationFound, SourceSide, find_source_side
from spark_jobs.errors import CdcError
from spark_jobs.lake.drop_mark import DropMark, LakeOwner, read_mark, refuse_half_removed, remove_mark, write_mark
from spark_jobs.lake.messages_state import MESSAGES_NAME
from spark_jobs.lake.table_folders import names_in_lake, require_folders_of
from spark_jobs.postgres.connection import Connection, connected
from spark_jobs.postgres.health import ServerIdentity, server_identity
from spark_jobs.postgres.locks import cuts_lock, slot_lock, table_lock
from spark_jobs.postgres.publication import drop_publication
from spark_jobs.postgres.publication_comment import write_comment
from spark_jobs.postgres.slot import drop_slot
from spark_jobs.progress import Progress, Step, silent
from spark_jobs.qualified_name import QualifiedName

_NOTHING = "nothing was removed"


@dataclass(frozen=True)
class _Found:
    """``lake`` is None where the lake is to be kept; ``mark``: that of an earlier ``drop`` that was stopped."""

    plan: DropPlan
    owner: LakeOwner
    source: SourceSide
    lake: LakeSide | None
    mark: DropMark | None


def plan_drop(pipeline: Pipeline, *, lake: bool) -> DropPlan:
    """What ``drop`` would remove now; nothing is changed. Raises what ``drop`` raises before it removes anything."""
    with _looked(pipeline, lake=lake) as (_, inventory):
        return inventory.plan


def drop(pipeline: Pipeline, *, lake: bool, progress: Progress = silent) -> DropReport:
    """Remove slot and publication, and with ``lake`` what is this pipeline's in ``lake.path``. If it is stopped at any
    step, run it again; if there is nothing to remove, nothing is done.

    A publication that the role may not drop is kept, and is an error in the report; the slot is dropped all the same.
    Any other refusal is raised before anything is removed: SlotError if the slot is not this pipeline's or somebody
    reads it, SlotInUseError and LakeError while another command is at work, SourceUnreachableError.
    """
    started = time.monotonic()
    with _looked(pipeline, lake=lake) as (control, inventory):
        steps = list(_steps(control, pipeline.lake, inventory))
        for number, (what, remove) in enumerate(steps):
            progress(Step("drop", what, number, len(steps), "steps"))
            remove()
    plan = inventory.plan
    seconds = time.monotonic() - started
    return DropReport(plan.pipeline, plan.lake, plan.keeps_lake, plan.tables, plan.removals, plan.left, seconds)


@contextmanager
def _looked(pipeline: Pipeline, *, lake: bool) -> Iterator[tuple[Connection, _Found]]:
    """What exists. No other command of this pipeline runs until the context ends."""
    with ExitStack() as locks:
        try:
            control = locks.enter_context(connected(pipeline.source.dsn))
            names = names_in_lake(pipeline.lake)
            locks.enter_context(slot_lock(control, pipeline.source.slot))
            locks.enter_context(cuts_lock(control, pipeline.source.slot))
            for name in {*names, *(table.name for table in pipeline.tables or ()), MESSAGES_NAME}:
                locks.enter_context(table_lock(control, pipeline.source.slot, name))
            inventory = _find(control, pipeline, names, lake=lake)
        except CdcError as error:
            raise error.within(_NOTHING) from None
        yield control, inventory


def _find(control: Connection, pipeline: Pipeline, names: tuple[QualifiedName, ...], *, lake: bool) -> _Found:
    server = server_identity(control)
    mark = read_mark(pipeline.lake)
    if not lake:
        refuse_half_removed(pipeline.lake)
    owner = mark.owner if mark is not None else _owner(pipeline, server)
    source = find_source_side(control, pipeline, owner, server, is_begun=mark is not None)
    side = find_lake_side(pipeline.lake, owner, mark) if lake else None
    parts, left = (side.parts, side.left) if side is not None else ((), ())
    plan = DropPlan(
        pipeline=pipeline.name,
        lake=pipeline.lake.path,
        keeps_lake=not lake,
        tables=len(names) if side is None else side.tables,
        removals=(*source.removals, *(part.removal for part in parts)),
        left=(*source.left, *left),
    )
    return _Found(plan, owner, source, side, mark)


def _owner(pipeline: Pipeline, server: ServerIdentity) -> LakeOwner:
    """Whose the lake is; without a landed window, whatever is in it can only be of this slot of this server."""
    log = ChangeLog(pipeline.lake.change_log)
    landed, log_id = log.checkpoint(), log.id()
    if landed is None:
        slot = pipeline.source.slot
        return LakeOwner(server.system_identifier, server.database, slot, (server.system_identifier, slot), log_id)
    require_folders_of(pipeline.lake, landed)
    identity = landed.identity
    return LakeOwner(identity.system_identifier, identity.database, identity.slot, identity.stream, log_id)


def _steps(control: Connection, lake: Lake, inventory: _Found) -> Iterator[tuple[str, Callable[[], None]]]:
    slot = inventory.source.slot
    if slot is not None:
        yield f"slot {slot.slot_name}", partial(drop_slot, control, slot.slot_name)
    for publication in inventory.source.publications:
        yield f"publication {publication.name}", partial(_leave_publication, control, publication)
    side = inventory.lake
    if side is None or not (side.parts or inventory.mark is not None):
        return
    if inventory.mark is None:
        yield "the mark", partial(write_mark, lake, DropMark(inventory.owner, side.delta_folders))
    for part in side.parts:
        yield part.name, partial(remove_part, lake, part)
    folders = (
        *(part.folder for part in side.parts if part.folder),
        *(inventory.mark.folders if inventory.mark else ()),
    )
    yield "empty folders", partial(remove_empty_lake_folders, lake, folders)
    yield "the mark", partial(remove_mark, lake)


def _leave_publication(control: Connection, publication: PublicationFound) -> None:
    if publication.left is None:
        drop_publication(control, publication.name)
    elif publication.shared is not None:
        write_comment(control, publication.name, publication.shared)
