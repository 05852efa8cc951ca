"""The template of tables' folders: one folder for each name, one name for each folder, and none of the lake's own."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.configuration import Lake
from spark_jobs.options.folder_template import DEFAULT_FOLDERS, FolderTemplate
from spark_jobs.qualified_name import QualifiedName

TEMPLATES = [
    DEFAULT_FOLDERS,
    FolderTemplate("{schema}/{table}"),
    FolderTemplate("bronze/{schema}__{table}"),
    FolderTemplate("{table}.{schema}_raw"),
    FolderTemplate("tables/{table}-{schema}"),
    FolderTemplate("{schema}_log/{table}"),
    FolderTemplate("tables/{schema}/data/x{table}"),
]
# names that are like the lake's own folders, or like what stands between two names
PIECES = st.sampled_from(
    ["_", "__", "-", ".", "/", "%5F", "_raw", "_delta", "a", "_messages", "cuts", "tables", "data"]
)
NAMES = st.one_of(
    st.lists(PIECES, min_size=1, max_size=3).map("".join),
    st.sampled_from(["cuts", "change_log", "_staging", "_delta_log", "_messages", "tables", "..", "ö"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
)
OWN = ("change_log", "cuts", "_staging", "_being_dropped.json", "tables/_messages")


@pytest.mark.parametrize("template", TEMPLATES, ids=str)
@given(schema=NAMES, table=NAMES)
@example(schema="a__b", table="c")
@example(schema="_delta", table="x")
@example(schema="cuts", table="x")
@example(schema="tables", table="_messages")
def test_a_folder_tells_its_tables_name_and_is_nobody_elses(template: FolderTemplate, schema: str, table: str) -> None:
    name = QualifiedName(schema, table)
    folder = template.folder(name)
    assert template.name_of(folder) == name, "so no other name has this folder"
    segments = folder.split("/")
    assert len(segments) == len(template.segments), "so no table is inside of another one's folder"
    assert "_delta_log" not in segments
    assert re.fullmatch(r"[A-Za-z0-9_%.-]+", "".join(segments))
    assert not any(segment.startswith(".") for segment in segments)
    for own in OWN:
        if template.text.startswith("tables/{schema}/") and own == "tables/_messages":
            continue  # a schema of that name excludes the messages table
        assert not f"{folder}/".startswith(f"{own}/")
        assert not own.startswith(f"{folder}/")


@given(schema=NAMES, table=NAMES)
def test_by_default_names_are_encoded_as_ever(schema: str, table: str) -> None:
    name = QualifiedName(schema, table)
    assert Lake("/lake").table(name) == f"/lake/tables/{name.path}"


def test_a_template_for_one_schema() -> None:
    template = FolderTemplate("{table}", "public")
    assert template.folder(QualifiedName("public", "orders")) == "orders"
    assert template.folder(QualifiedName("public", "cuts")) == "%63%75%74%73"
    assert template.folder(QualifiedName("public", "tables")) == "%74%61%62%6C%65%73", "the messages table is in it"
    assert template.name_of("orders") == QualifiedName("public", "orders")
    assert template.name_of("change_log") is None
    assert Lake("/lake", tables=template).table(QualifiedName("", "_messages")) == "/lake/tables/_messages"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bronze/{schema}", "expected {table} once"),
        ("{schema}/{table}/{table}", "expected {table} once"),
        ("{schema}/{schema}.{table}", "{schema} at most once"),
        ("{schema}{table}", "expected one of / . _ - between {schema} and {table}"),
        ("{schema}x{table}", "expected one of / . _ - between {schema} and {table}"),
        ("../{schema}/{table}", "expected folders below lake.path"),
        ("/data/{schema}/{table}", "expected folders below lake.path"),
        ("{schema}//{table}", "expected folders below lake.path"),
        ("{schema}/{table}/", "expected folders below lake.path"),
        ("", "expected folders below lake.path"),
        (".x/{schema}/{table}", "expected folders below lake.path"),
        ("{database}/{schema}/{table}", "holds {"),
        ("s3://bucket/{schema}/{table}", "holds :"),
        ("a b/{schema}/{table}", "holds  "),
        ("a%2F/{schema}/{table}", "holds %"),
        ("cuts/{schema}/{table}", "is where the lake has files of its own"),
        ("_staging/{schema}/{table}", "is where the lake has files of its own"),
        ("tables/_messages/{schema}/{table}", "is where the lake has files of its own"),
        ("x/_delta_log/{schema}.{table}", "is where the lake has files of its own"),
    ],
)
def test_what_no_template_may_be(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        FolderTemplate(text)
