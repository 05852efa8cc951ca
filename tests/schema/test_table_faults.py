"""Which tables without a key can be followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.options.table_mode import MIRROR, Form
from spark_jobs.schema.relation_facts import RelationFacts
from spark_jobs.schema.table_faults import table_faults
from tests.schema.relation_facts import FACTS

SENT = ("id", "note")
Leaves = tuple[tuple[str, ...] | None, ...]


def keyless(relreplident: str, leaves: Leaves = ()) -> RelationFacts:
    return replace(FACTS, relreplident=relreplident, primary_key=(), replica_identity=(), leaf_identities=leaves)


@pytest.mark.parametrize(
    ("identity", "leaves", "published", "fault"),
    [
        ("f", (), False, None),
        ("d", (), True, None),
        ("n", (), True, None),
        ("d", (), False, "has no usable key (replica identity d)"),
        ("f", (None, None), False, None),
        ("d", ((), ()), True, None),
        ("f", (None, ()), False, "has no key that each of its partitions sends with its changes"),
        ("f", (None, ("id",)), True, "has no key that each of its partitions sends with its changes"),
    ],
)
def test_without_a_key(identity: str, leaves: Leaves, published: bool, fault: str | None) -> None:
    faults = table_faults(keyless(identity, leaves), binary=False, sent=SENT, published=published, form=MIRROR)
    assert [found.what for found in faults] == ([] if fault is None else [f"table public.t {fault}"])


@pytest.mark.parametrize(
    ("facts", "key", "fault"),
    [
        (replace(keyless("f"), declared_key=("id",)), ("id",), None),
        (replace(FACTS, relreplident="f", primary_key=("id",), replica_identity=()), ("id",), None),
        (keyless("f"), ("id", "nope"), "has no column nope, and key: names it"),
        (keyless("f"), ("id", "note"), "has no unique index on exactly id, note, all of them NOT NULL, as key: says"),
        (keyless("d"), ("id",), "does not send whole rows, which key: id requires"),
        (
            replace(FACTS, relreplident="f", primary_key=("id",), replica_identity=()),
            ("note",),
            "has a key of its own, id, and key: says note",
        ),
    ],
)
def test_a_declared_key(facts: RelationFacts, key: tuple[str, ...], fault: str | None) -> None:
    faults = table_faults(facts, binary=False, sent=SENT, published=True, form=MIRROR, key=key)
    assert [found.what for found in faults] == ([] if fault is None else [f"table public.t {fault}"])


def test_a_declared_key_makes_a_mode_that_needs_one_possible() -> None:
    without, declared = keyless("f"), replace(keyless("f"), declared_key=("id",))
    faults = {
        facts: [
            found.what for found in table_faults(facts, binary=False, sent=SENT, published=True, form=Form("history"))
        ]
        for facts in (without, declared)
    }
    assert faults == {without: ["table public.t has no key, and mode history keeps rows by their key"], declared: []}


def options(**types: str) -> ColumnOptions:
    return ColumnOptions(ChosenTypes.of({name: ChosenType.parse(text) for name, text in types.items()}))


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (ColumnOptions(policies=(("note", "null"),)), None),
        (
            ColumnOptions(policies=(("notes", "null"),)),
            "has no column notes that is followed, and on_unrepresentable: names it",
        ),
        (
            ColumnOptions(policies=(("id", "clamp"),)),
            "has id in its key, and a key column is never without its value",
        ),
        (options(gone="array"), "has no column gone that is followed, and types: names it"),
        (options(note="variant"), "has column note of type t, which cannot be variant as types: says"),
        (options(id="decimal(9,0)"), "has column id of type t, which cannot be decimal(9,0) as types: says"),
    ],
)
def test_what_is_said_of_columns(said: ColumnOptions, fault: str | None) -> None:
    faults = table_faults(FACTS, binary=False, sent=SENT, published=True, form=MIRROR, options=said)
    assert [found.what for found in faults] == ([] if fault is None else [f"table public.t {fault}"])
