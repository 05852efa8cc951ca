from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.lake.generation import Generation
from spark_jobs.logicalrep.lsn import Lsn
from spark_jobs.options.column_options import ChosenType, ChosenTypes
from spark_jobs.options.table_mode import Form
from spark_jobs.qualified_name import QualifiedName

TYPES = st.dictionaries(st.text(max_size=8), st.sampled_from([ChosenType("array"), ChosenType("decimal", 38, 10)]))
GENERATIONS = st.builds(
    Generation,
    st.integers(0, 2**64 - 1).map(Lsn),
    st.sampled_from(["", "0a1b"]),
    st.lists(st.sampled_from(["update", "delete", "truncate"]), unique=True).map(tuple),
    st.sampled_from(["mirror", "soft_delete", "history", "append"]),
    TYPES.map(ChosenTypes.of),
    st.sampled_from(["", "5a17:2"]),
    st.sampled_from([(), ("_commit_time",), ("_commit_lsn", "_commit_time")]),
    st.none() | st.builds(QualifiedName, st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8)),
)


@given(GENERATIONS)
def test_a_generation_is_read_as_it_was_written(generation: Generation) -> None:
    assert Generation.parse(str(generation)) == generation


def test_the_text_is_what_lakes_hold() -> None:
    types = ChosenTypes.of({"a-b:c+d": ChosenType("array")})
    assert str(Generation(Lsn(0x100))) == "0000000000000100"
    assert str(Generation(Lsn(0x100), "0a1b", ("delete", "truncate"))) == "0000000000000100-0a1b-delete+truncate"
    assert str(Generation(Lsn(0x100), mode="history")) == "0000000000000100---history"
    everything = Generation(Lsn(0x100), "0a1b", ("delete",), "history", types, "5a17:2")
    assert str(everything) == "0000000000000100-0a1b-delete-history-a%2Db%3Ac%2Bd:array-5a17:2"


def test_a_further_table_of_a_source_table_names_that_one() -> None:
    generation = Generation(Lsn(0x100), mode="history", shows=QualifiedName("public", "a-b"))
    assert str(generation) == "0000000000000100---history----public/a%2Db"


def test_an_empty_one_says_so_last() -> None:
    assert str(Generation(Lsn(0x100), mode="append", is_empty=True)) == "0000000000000100---append-----empty"


def test_commit_columns_follow_the_mask() -> None:
    generation = Generation(Lsn(0x100)).in_form(Form("mirror", ("_commit_lsn", "_commit_time")))
    assert str(generation) == "0000000000000100------_commit_lsn+_commit_time"
    assert generation.form == Form.of("mirror", ["_commit_time", "_commit_lsn"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0000000000000100---versions",
        "0000000000000100-0a1b-----more",
        "0000000000000100-------x",
        "0000000000000100-------public/orders-x",
        "0000000000000100--------empty-x",
    ],
)
def test_what_a_later_version_wrote_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown generation|invalid literal"):
        Generation.parse(text)
