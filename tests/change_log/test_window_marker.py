"""The marker survives its JSON, and says nothing of when it was written."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.change_log.change_counts import ChangeCounts
from spark_jobs.change_log.window_marker import PeriodsSeen, RelationCounts, WindowMarker
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.qualified_name import QualifiedName
from tests.change_log.identity import IDENTITY


def test_json_both_ways() -> None:
    counts = (RelationCounts(16384, "public", 'odd "name"', ChangeCounts(1, 2, 3, 4), 5),)
    marker = WindowMarker(5, Window(Lsn(0x10), Lsn(0x1_0000_0020)), IDENTITY, counts, 6, 7, 8)
    assert WindowMarker.from_json(marker.to_json().encode()) == marker
    seen = replace(marker, periods=PeriodsSeen("2026-11-27T00:00:00+00:00", ("2026-11-27T00:00:00+00:00",)))
    assert WindowMarker.from_json(seen.to_json()) == seen
    assert "periods" not in marker.to_json(), "as earlier versions can read it"
    assert '["0/10","1/20"]' in marker.to_json()
    assert '"inserts":1,"nspname":"public","relid":16384' in marker.to_json()  # flat: logs are older than ChangeCounts
    assert marker.changes == 10
    assert IDENTITY.app_id == "pgcdc:7123456789012345678:sl"


def test_counts_of_a_table_by_its_oid_or_its_name() -> None:
    """In one window a table may be renamed, and another one get its name."""
    before, other, after = (
        RelationCounts(relid, "public", name) for relid, name in ((1, "orders"), (2, "items"), (1, "old_orders"))
    )
    another = RelationCounts(3, "public", "orders")
    marker = WindowMarker(5, Window(Lsn(1), Lsn(2)), IDENTITY, (another, before, other, after))
    orders = QualifiedName("public", "orders")
    assert marker.counts_of(1) == (before, after)
    assert marker.counts_of(1, orders) == (another, before, after), "in their order, each once"
    assert marker.counts_of(None, orders) == (another, before)
    assert marker.counts_of(4, QualifiedName("public", "none")) == marker.counts_of(None) == ()
    assert WindowMarker.from_json(marker.to_json()) == marker, "what was asked is no part of it"
