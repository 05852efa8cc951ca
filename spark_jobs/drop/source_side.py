"""What the pipeline made at the source: its slot, and the publication if it is ours.

Nothing else of ours outlives its session there: the copies of the slot that windows are read from and the slots of
snapshots are temporary, and our locks end with the session.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.capture.slot_owner import is_read_for_another
from spark_jobs.configuration import Pipeline
from spark_jobs.drop.drop_report import Left, Removal
from spark_jobs.errors import PreconditionError, SlotError, SlotInUseError
from spark_jobs.lake.drop_mark import LakeOwner
from spark_jobs.postgres.connection import Connection
from spark_jobs.postgres.flushed_wal import flushed_lsn
from spark_jobs.postgres.health import ServerIdentity
from spark_jobs.postgres.privileges import server_settings
from spark_jobs.postgres.publication import find_publication, publication_owner
from spark_jobs.postgres.publication_comment import PublicationComment, may_write_comment
from spark_jobs.postgres.slot import Slot, find_slot, require_logical, require_plugin
from spark_jobs.qualified_name import quoted_identifier
from spark_jobs.tables.at_source import AtSource


@dataclass(frozen=True)
class PublicationFound:
    """``left``: why it is kept, None if it is dropped. ``shared``: for a publication of ours that another slot is read
    with, the comment without this pipeline's slot; None if it cannot be written."""

    name: str
    left: Left | None = None
    shared: PublicationComment | None = None


@dataclass(frozen=True)
class SourceSide:
    """``retained_bytes``: the WAL that the server keeps for the slot, None if it is lost. ``note``: what to know of the
    slot before it is dropped."""

    slot: Slot | None
    retained_bytes: int | None
    publications: tuple[PublicationFound, ...]
    note: str = ""

    @property
    def removals(self) -> tuple[Removal, ...]:
        slot = () if self.slot is None else (Removal("slot", self.slot.slot_name, self.retained_bytes, self.note),)
        return (
            *slot,
            *(
                Removal("publication", publication.name)
                for publication in self.publications
                if publication.left is None
            ),
        )

    @property
    def left(self) -> tuple[Left, ...]:
        return tuple(publication.left for publication in self.publications if publication.left is not None)


def find_source_side(
    control: Connection, pipeline: Pipeline, owner: LakeOwner, server: ServerIdentity, *, is_begun: bool
) -> SourceSide:
    """``is_begun``: an earlier ``drop`` has reached the lake, so the slot is dropped already. Raises SlotError for a
    slot that is not this pipeline's, or that somebody reads."""
    source = pipeline.source
    _check_owner(pipeline, owner, server)
    slot = find_slot(control, source.slot)
    if slot is not None:
        _check_slot(control, pipeline, slot, owner)
    is_standby = server_settings(control).in_recovery
    if is_standby and not is_begun and (slot is None or slot.is_synced):
        raise SlotError(
            f"the server is a standby, and has no slot {source.slot} of its own",
            hint="name the primary in source.dsn: what this pipeline made there is removed there",
        )
    names = source.publications if source.has_publications else ()
    publications = (_publication(control, name, source.slot, is_standby=is_standby) for name in names)
    note = "" if owner.log is not None else "lake.path has no change log that was read from it"
    retained = None
    if slot is not None and slot.restart_lsn is not None and slot.wal_status != "lost":
        retained = max(0, flushed_lsn(control) - slot.restart_lsn)
    return SourceSide(slot, retained, tuple(each for each in publications if each is not None), note)


def _check_owner(pipeline: Pipeline, owner: LakeOwner, server: ServerIdentity) -> None:
    for what, then, now in (
        ("cluster (system identifier)", owner.system_identifier, server.system_identifier),
        ("database", owner.database, server.database),
        ("slot", owner.slot, pipeline.source.slot),
    ):
        if then != now:
            raise SlotError(
                f"the change log at {pipeline.lake.change_log} is of another {what}: it has {then}, now it is {now}",
                hint="point the configuration back; where the server was replaced, `postgres-cdc recover --config FILE`"
                " first makes the change log one of this server",
            )


def _check_slot(control: Connection, pipeline: Pipeline, slot: Slot, owner: LakeOwner) -> None:
    source = pipeline.source
    require_logical(slot, control.info.dbname)
    require_plugin(slot, source.plugin)
    if is_read_for_another(AtSource(control, pipeline), owner.log):
        raise SlotError(
            f"slot {slot.slot_name} is read for another lake than {pipeline.lake.path}: the comment of publication"
            f" {source.publications[0]} names its change log",
            hint="drop it with the configuration of that lake; where that one is given up, set source.adopt_slot: true",
        )
    if slot.active_pid is not None:
        raise SlotInUseError(
            f"slot {slot.slot_name} is being read by server process {slot.active_pid}",
            hint="stop that reader, then run it again",
        )


def _publication(control: Connection, name: str, slot: str, *, is_standby: bool) -> PublicationFound | None:
    publication = find_publication(control, name)
    if publication is None:
        return None
    label = f"publication {name}"
    if publication.comment is None:
        return PublicationFound(name, Left(label, "it is your own"))
    others = [each for each, _ in publication.comment.logs if each != slot and find_slot(control, each)]
    may_alter = may_write_comment(control, name)
    if others:
        left = Left(label, f"slot {', '.join(others)} is read with it too")
        is_named = publication.comment.log_of(slot) is not None
        return PublicationFound(name, left, publication.comment.without(slot) if may_alter and is_named else None)
    if may_alter:
        return PublicationFound(name)
    statement = f"DROP PUBLICATION {quoted_identifier(name)}"
    if is_standby:
        what, hint = "the server is a standby", f"on its primary: {statement}"
    else:
        what, hint = "the role does not own it", f"as {publication_owner(control, name)}: {statement}"
    return PublicationFound(name, Left(label, what, PreconditionError(f"{label} was left: {what}", hint=hint)))
