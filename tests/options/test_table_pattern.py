"""Patterns of table names: ``*`` and ``?`` in schema and table, and the quotes of SQL."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.errors import ConfigurationError
from spark_jobs.options.table_pattern import TablePattern, selected_names
from spark_jobs.qualified_name import QualifiedName

ANY_NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
ORDERS, ITEMS, AUDIT = (QualifiedName("public", name) for name in ("orders", "order_items", "audit_log"))
WEIRD, SALES = QualifiedName("Weird.Name", "Order*1"), QualifiedName("sales", "orders")
KNOWN = (ORDERS, ITEMS, AUDIT, WEIRD, SALES)


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("public.*", (ORDERS, ITEMS, AUDIT)),
        ("*", (ORDERS, ITEMS, AUDIT)),  # as a name without a schema
        ("*.*", KNOWN),
        ("*.orders", (ORDERS, SALES)),
        ("PUBLIC.Order*", (ORDERS, ITEMS)),  # bare letters are folded
        ("public.order?", (ORDERS,)),
        ("public.audit_*", (AUDIT,)),
        ('"Weird.Name".*', (WEIRD,)),
        (r'U&"Weird\002EName".*', (WEIRD,)),
        ('*."Order*1"', (WEIRD,)),
        ('*."Order"*', (WEIRD,)),
        ('*."Order*"', ()),  # inside quotes * is a character
        ('*."order?"', ()),
        ("Weird*.*", ()),
        ("public.orders", (ORDERS,)),
        ('public."orders"', (ORDERS,)),
    ],
)
def test_what_a_pattern_matches(pattern: str, matching: tuple[QualifiedName, ...]) -> None:
    assert tuple(filter(TablePattern.parse(pattern).matches, KNOWN)) == matching


@given(ANY_NAME, ANY_NAME)
@example("a*", "b?[c]")
@example("[!a]", "new\nline")
def test_any_name_is_a_pattern_that_matches_itself_alone(schema: str, table: str) -> None:
    name = QualifiedName(schema, table)
    pattern = TablePattern.parse(str(name))
    assert pattern.name == name
    assert pattern.matches(name)
    assert not pattern.matches(QualifiedName(schema, f"{table}x"))
    assert TablePattern.parse("*.*").matches(name)


@pytest.mark.parametrize("text", ["a.b.*", "public.*.", ".*", "*..a", "pub[ab].*", "public.*; DROP", '"a.*', "a b.*"])
def test_what_is_no_pattern_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not a (pattern of table names|table name): "):
        TablePattern.parse(text)


def test_tables_are_selected_once_and_names_stand_for_themselves() -> None:
    patterns = map(TablePattern.parse, ("public.unknown", "*.orders", "public.order*"))
    assert selected_names(patterns, KNOWN) == (QualifiedName("public", "unknown"), ORDERS, SALES, ITEMS)


def test_a_pattern_that_selects_nothing_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^no table matches shop\.\*"):
        selected_names([TablePattern.parse("shop.*")], KNOWN)
