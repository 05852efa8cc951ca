"""Which column of a Relation message is which column of the lake."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.lake_types import LakeKind, LakeType
from spark_jobs.schema.relation_version import KnownColumn, RelationVersion
from spark_jobs.schema.table_shape import LakeColumn, TableShape
from tests.wire import write_message


def message(*names: str, typid: int = 25) -> bytes:
    columns = tuple(RelationColumn(name, 23 if name == "id" else typid, -1, name == "id") for name in names)
    return write_message(Relation(16384, "public", "t", "d", columns))


def shape(**numbers: int) -> TableShape:
    columns = tuple(
        LakeColumn(name, number, LakeType(LakeKind.INT if name == "id" else LakeKind.STRING), name == "id", 25)
        if name != "id"
        else LakeColumn(name, number, LakeType(LakeKind.INT), True, 23)
        for name, number in numbers.items()
    )
    return TableShape(16384, QualifiedName("public", "t"), columns)


def known(**numbers: int) -> tuple[KnownColumn, ...]:
    return tuple(KnownColumn(number, name) for name, number in sorted(numbers.items(), key=lambda item: item[1]))


def test_the_same_columns() -> None:
    assert RelationVersion.of(message("id", "a"), shape(id=1, a=2)).places == (0, 1)


def test_a_column_added_since_has_no_place() -> None:
    old = message("id", "a")
    assert RelationVersion.of(old, shape(id=1, a=2, b=3), added={3}).places == (0, 1, None)
    assert RelationVersion.of(old, shape(id=1, a=2, b=3)).places is None, "what its rows hold is not known"


def test_the_name_of_an_added_column_that_another_has_now() -> None:
    """ADD a; a row; RENAME a TO b; ADD a: the row has the first one's value."""
    now = shape(id=1, v=2, b=3, a=4)
    assert RelationVersion.of(message("id", "v", "a"), now, added={3, 4}).places is None
    assert RelationVersion.of(message("id", "v", "b"), now, added={3, 4}).places == (0, 1, 2, None)
    assert RelationVersion.of(message("id", "v"), now, added={3, 4}).places == (0, 1, None, None)


def test_a_column_dropped_since_is_left_out() -> None:
    old = message("id", "gone", "a")
    assert RelationVersion.of(old, shape(id=1, a=3), [known(id=1, gone=2, a=3)]).places == (0, 2)
    assert RelationVersion.of(old, shape(id=1, a=3)).places is None, "nothing says which number it had"


def test_a_column_dropped_since_that_the_lake_keeps() -> None:
    whole = shape(id=1, gone=2, a=3)
    kept = replace(whole, columns=tuple(replace(column, dropped=column.attnum == 2) for column in whole.columns))
    assert RelationVersion.of(message("id", "gone", "a"), kept).places == (0, 1, 2)
    assert RelationVersion.of(message("id", "a"), kept).places == (0, None, 1)
    assert RelationVersion.of(message("id", "gone", "a"), kept, gone={2}).places is None, "it is another column"


def test_names_that_were_swapped_since() -> None:
    now, before = shape(id=1, b=2, a=3), known(id=1, a=2, b=3)
    assert RelationVersion.of(message("id", "b", "a"), now, [before]).places == (0, 1, 2)
    assert RelationVersion.of(message("id", "a", "b"), now, [before]).places == (0, 1, 2)
    assert RelationVersion.of(message("id", "a", "b"), now).places is None, "no description has them in that order"


def test_a_name_that_meant_another_column_is_ambiguous() -> None:
    assert RelationVersion.of(message("id", "a"), shape(id=1, a=3), [known(id=1, a=2)], {3}).places is None


def test_another_type_does_not_fit() -> None:
    assert RelationVersion.of(message("id", "a", typid=23), shape(id=1, a=2)).places is None
    assert RelationVersion.of(message("id", "a", typid=1043), shape(id=1, a=2)).places == (0, 1), "varchar is text"


def test_what_is_no_relation_message_fits_nothing() -> None:
    assert RelationVersion.of(message("id", "a")[:-1], shape(id=1, a=2)).places is None
    assert RelationVersion.of(b"", shape(id=1, a=2)).places is None


def chosen(typid: int, to: LakeType) -> TableShape:
    columns = shape(id=1).columns
    return TableShape(16384, QualifiedName("public", "t"), (*columns, LakeColumn("a", 2, to, False, typid)))


def test_a_chosen_type_fits_the_type_that_it_was_chosen_for() -> None:
    decimal = chosen(1700, LakeType(LakeKind.DECIMAL, 38, 10, chosen=True))
    assert RelationVersion.of(message("id", "a", typid=1700), decimal).places == (0, 1)
    assert RelationVersion.of(message("id", "a", typid=701), decimal).places is None
    integers = chosen(1007, LakeType(LakeKind.ARRAY, element=LakeType(LakeKind.INT), chosen=True))
    assert RelationVersion.of(message("id", "a", typid=1007), integers).places == (0, 1)
    assert RelationVersion.of(message("id", "a", typid=1009), integers).places is None, "text[] now"
    mapped = shape(id=1, a=2)
    assert RelationVersion.of(message("id", "a", typid=1009), mapped).places == (0, 1), "text in the lake, both"


def test_columns_that_were_added_and_dropped_unseen_follow_those_that_were_there_all_along() -> None:
    old = message("id", "a", "gone", "too")
    assert RelationVersion.of(old, shape(id=1, a=2), first=known(id=1, a=2)).places == (0, 1)
    for names in (("id", "gone", "a"), ("a", "id", "gone"), ("id",)):
        assert RelationVersion.of(message(*names), shape(id=1, a=2), first=known(id=1, a=2)).places is None
    both = [known(id=1, a=2, gone=3, too=4), known(id=1, a=2, gone=4, too=5)]
    assert RelationVersion.of(old, shape(id=1, a=2), both, first=known(id=1, a=2)).places is None, "they disagree"
