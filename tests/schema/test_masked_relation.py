"""Which columns of a Relation message are masked: decided with certainty, or not at all."""

from __future__ import annotations

from spark_jobs.logicalrep.relation import Relation, RelationColumn
from spark_jobs.options.table_mask import TableMask, why_masked_otherwise
from spark_jobs.qualified_name import QualifiedName
from spark_jobs.schema.fingerprint import Fingerprint, FingerprintColumn, FingerprintMask
from spark_jobs.schema.masked_facts import masked_facts
from spark_jobs.schema.masked_relation import MaskedRelation
from spark_jobs.schema.relation_facts import ColumnFacts, RelationFacts

SALT = b"pepper"
EMAIL = TableMask(("email",), SALT)


def message(*names: str) -> Relation:
    return Relation(16384, "public", "t", "d", tuple(RelationColumn(name, 25, -1, False) for name in names))


def table(mask: TableMask = EMAIL, *earlier: dict[int, str], **now: int) -> MaskedRelation:
    return MaskedRelation(16384, "public.t", mask, {number: name for name, number in now.items()}, earlier)


def look(mask: FingerprintMask | None, **columns: int) -> Fingerprint:
    seen = tuple(FingerprintColumn(number, name, 25, -1) for name, number in columns.items())
    return Fingerprint("word", "[]", 16384, QualifiedName("public", "t"), "", True, seen, (), (), mask)


def test_by_its_name() -> None:
    assert table(id=1, email=2).places(message("id", "email")) == (1,)
    assert table(TableMask(("id", "email"), SALT), id=1, email=2).places(message("id", "email")) == (0, 1)


def test_a_column_that_is_not_sent_counts_for_nothing() -> None:
    assert table(id=1, email=2, upper=3).places(message("id", "email")) == (1,)


def test_renamed_between_two_rows() -> None:
    renamed = table(TableMask(("mail",), SALT), {1: "id", 2: "email"}, id=1, mail=2)
    assert renamed.places(message("id", "email")) == (1,)
    assert renamed.places(message("id", "mail")) == (1,)
    assert renamed.places(message("id", "tmp")) == (1,), "it can be no other column"
    assert not renamed.knows(message("id", "tmp"))
    assert renamed.knows(message("id", "email"))


def test_added_and_dropped_between_two_rows() -> None:
    altered = table(EMAIL, {1: "id", 2: "email", 3: "old"}, id=1, email=2, new=4)
    assert altered.places(message("id", "email", "old")) == (1,)
    assert altered.places(message("id", "email", "old", "new")) == (1,)
    assert altered.places(message("id", "email", "new")) == (1,)
    assert altered.places(message("id", "old")) is None, "the masked column was there at every look"


def test_a_name_that_no_look_has_shown() -> None:
    now = table(EMAIL, id=1, email=2, note=3)
    assert now.places(message("id", "tmp", "note")) == (1,), "the masked column, called otherwise for a time"
    assert now.places(message("id", "email", "tmp")) == (1,), "the other one"
    assert now.places(message("id", "email", "note", "tmp")) == (1, 3), "added and dropped between two looks"
    assert now.places(message("tmp", "email", "note")) == (1,)
    assert now.places(message("id", "tmp")) is None, "which of two"
    assert now.places(message("id", "x", "y")) is None


def test_replaced_by_a_copy_that_gets_its_name() -> None:
    moved = table(EMAIL, {1: "id", 2: "email", 3: "note"}, id=1, note=3, email=4)
    assert moved.places(message("id", "email", "note", "email_new")) == (1, 3)
    assert moved.places(message("id", "note", "email_new")) == (2,)


def test_dropped_and_added_again() -> None:
    again = table(EMAIL, {1: "id", 2: "email", 3: "note"}, id=1, note=3, email=4)
    assert again.places(message("id", "email", "note")) == (1,)
    assert again.places(message("id", "note", "email")) == (2,)
    assert again.places(message("id", "note")) == ()


def test_the_masked_column_was_added_later() -> None:
    assert table(EMAIL, {1: "id"}, id=1, email=2).places(message("id")) == ()
    assert table(id=1, email=2).places(message("id")) is None


def test_a_name_that_went_from_one_column_to_another_is_in_doubt() -> None:
    """The column ``note`` was called ``email``, and the other way round."""
    swapped = table(EMAIL, {1: "id", 2: "email", 3: "note"}, id=1, note=2, email=3)
    assert swapped.places(message("id", "email", "note")) is None
    assert swapped.places(message("id", "note", "email")) is None
    before = look(FingerprintMask("word", ("email",)), id=1, email=2, note=3)
    assert swapped.taken_from(before) == ("email", "note")
    assert swapped.taken_from(look(None, id=1, email=2, note=3)) is None, "it was not masked then"


def test_out_of_order_is_in_doubt() -> None:
    assert table(id=1, email=2, note=3).places(message("id", "note", "email")) is None


def test_a_removed_mask_or_a_renamed_column_is_not_taken_from() -> None:
    before = look(FingerprintMask("word", ("email", "phone")), id=1, email=2, phone=3)
    assert table(EMAIL, id=1, email=2, phone=3).taken_from(before) is None
    both = TableMask(("mail", "phone"), SALT)
    assert table(both, id=1, mail=2, phone=3).taken_from(before) is None, "it was renamed, and is masked"


def test_facts_call_it_text_and_hash_its_missing_value() -> None:
    column = ColumnFacts(2, "email", 20, -1, "bigint", 20, -1, "pg_catalog.int8out", True, "", "42")
    other = ColumnFacts(1, "id", 20, -1, "bigint", 20, -1, "pg_catalog.int8out", True)
    facts = RelationFacts(16384, "public", "t", "d", ("id",), ("id",), (other, column))
    masked = masked_facts(facts, EMAIL)
    assert masked.columns[0] == other
    assert masked.columns[1].lake_type.sql == "string"
    assert masked.columns[1].typoutput == "pg_catalog.int8out"
    assert masked.columns[1].attmissingval == EMAIL.hashed(b"42").decode()
    assert masked.mask == f"{EMAIL.salt_word}+2"
    assert RelationFacts.from_json(masked.to_json()) == masked
    assert masked_facts(facts, None) == facts


def test_differences_between_words_of_masks() -> None:
    mine, others = EMAIL.word([2]), TableMask(("email",), b"salt").word([2])
    assert EMAIL.word([]) == ""
    assert why_masked_otherwise(mine, mine) == why_masked_otherwise("", "") == ""
    assert why_masked_otherwise(mine, EMAIL.word([2, 3])) == "its masked columns were changed"
    assert why_masked_otherwise("", mine) == why_masked_otherwise(mine, "") == "its masked columns were changed"
    assert why_masked_otherwise(mine, others) == "the salt of its masked columns was changed"
    assert why_masked_otherwise(mine, EMAIL.salt_word) == ""
    assert SALT.decode() not in repr(EMAIL)
