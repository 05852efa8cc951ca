"""What the change log holds of one table in a range of windows, ready to be decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.apply.table_range import TableRange
from spark_jobs.change_log.log import ChangeLog
from spark_jobs.change_log.schema import RowKind
from spark_jobs.change_log.window_marker import WindowMarker
from spark_jobs.errors import DecodeError, SchemaChangeError
from spark_jobs.logicalrep.errors import LogicalRepError
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.logicalrep.pgoutput.read_message import read_message
from spark_jobs.logicalrep.relation import Relation
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_shape import TableShape

_CHANGES = [kind.value for kind in (RowKind.INSERT, RowKind.UPDATE, RowKind.DELETE, RowKind.TRUNCATE)]


@dataclass(frozen=True)
class LandedChanges:
    """``rows``: kinds I, U, D and T in no order, only T where executors read the rest; ``relations``: Relation messages
    by version; ``shape``: the latest, ``shape_lsn``: the commit that first used it."""

    rows: pa.Table
    relations: Mapping[int, bytes]
    shape: TableShape
    shape_lsn: Lsn


def one_relid(work: TableRange) -> int | None:
    """The OID of the table in these windows, None when they hold nothing of it.

    Raises SchemaChangeError when another table goes by its name than the one that was snapshotted, or that one by
    another name.
    """
    relid, name = work.state.relid, work.name
    for marker in work.markers:
        for counts in marker.relations:
            named_so = (counts.nspname, counts.relname) == (name.nspname, name.relname)
            if named_so and relid is None:
                relid = counts.relid
            if named_so != (counts.relid == relid):
                raise _another_table(marker, name, renamed=not named_so)
    seen = {counts.relid for marker in work.markers for counts in marker.relations}
    return relid if relid in seen else None


def _another_table(marker: WindowMarker, name: QualifiedName, *, renamed: bool) -> SchemaChangeError:
    what = "was renamed" if renamed else "is another table: it was dropped and made anew, or another was renamed to it"
    return SchemaChangeError(
        f"{name} {what}, in window {marker.ordinal} ({marker.window})",
        hint=f"correct tables: if need be, then re-snapshot this table: postgres-cdc snapshot '{name}'",
    )


def landed_changes(work: TableRange, relid: int) -> LandedChanges | None:
    """The table's changes in the range that its snapshot does not show; None when there are none.

    Raises DecodeError when the log lacks what describes them.
    """
    log = ChangeLog(work.pipeline.lake.change_log)
    landed = described_changes(log.read([relid], work.first.ordinal, work.last.ordinal), work)
    return landed if landed is not None and landed.rows.num_rows else None


def described_changes(landed: pa.Table, work: TableRange) -> LandedChanges | None:
    """``landed``: the table's rows in the range, with or without its row changes. None when it holds nothing that came
    after the snapshot."""
    state = work.state
    kinds = landed.column("kind")
    # the snapshot shows the transactions that committed before its LSN
    since = pc.greater_equal(landed.column("commit_lsn"), int(state.snapshot_lsn))
    changes = landed.filter(pc.and_(pc.is_in(kinds, pa.array(_CHANGES)), since))
    order = [("window", "ascending"), ("commit_lsn", "ascending"), ("ordinal", "ascending")]
    relations = landed.filter(pc.equal(kinds, RowKind.RELATION.value)).sort_by(order)
    facts = landed.filter(pc.equal(kinds, RowKind.FACTS.value)).sort_by(order)
    if not facts.num_rows or not relations.num_rows:
        if not changes.num_rows:
            return None
        raise DecodeError(
            f"the change log does not describe {state.name} in windows {work.first.ordinal} to {work.last.ordinal}",
            hint="its retention has cut into them; re-snapshot this table",
        )
    messages = dict(zip(relations.column("version").to_pylist(), relations.column("data").to_pylist(), strict=True))
    shape = _latest_shape(state.name, facts, messages)
    of_shape = facts.filter(pc.equal(facts.column("version"), facts.column("version")[-1]))
    lsn = max(pc.min(of_shape.column("commit_lsn")).as_py(), int(state.snapshot_lsn))
    return LandedChanges(changes, messages, shape, Lsn(lsn))


def _latest_shape(name: QualifiedName, facts: pa.Table, messages: Mapping[int, bytes]) -> TableShape:
    version = facts.column("version")[-1].as_py()
    try:
        relation = read_message(messages[version])
        found = RelationFacts.from_json(facts.column("data")[-1].as_py())
    except (LogicalRepError, KeyError, TypeError, ValueError) as error:
        raise DecodeError(
            f"the change log's description {version} of {name} is damaged ({type(error).__name__})"
        ) from error
    if not isinstance(relation, Relation):
        raise DecodeError(f"what the change log holds as Relation message {version} of {name} is another message")
    return TableShape.of(found, relation)
