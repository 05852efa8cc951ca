"""Tables' names: whatever they hold, they print as harmless SQL, are read back, and stay in their folder."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.configuration import Lake
from spark_jobs.errors import CONTROLS
from spark_jobs.qualified_name import QualifiedName

ANY_NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@given(ANY_NAME, ANY_NAME)
@example("../..", "\x1b[31mred")
@example("_delta_log", "_delta_log")
@example('a"\\b', "new\nline \u202e \x9b")
def test_any_name_prints_on_one_line_and_is_read_back(schema: str, table: str) -> None:
    name = QualifiedName(schema, table)
    assert QualifiedName.parse(str(name)) == name
    assert not CONTROLS.search(str(name))


@given(ANY_NAME, ANY_NAME)
@example("..", "..")
@example(".", "/etc/passwd")
@example("_delta_log", "_delta_log")
def test_any_name_stays_in_a_folder_of_its_own(schema: str, table: str) -> None:
    lake = Lake("/lake")
    path = lake.table(QualifiedName(schema, table))
    assert os.path.normpath(path) == path
    assert path.startswith("/lake/tables/")
    assert path.count("/") == 4
    assert "_delta_log" not in path.split("/")


@given(ANY_NAME, ANY_NAME)
@example("_delta_log", "%5Fdelta_log")
@example("a.b", "a%2Eb")
def test_two_names_have_two_folders(one: str, other: str) -> None:
    paths = {QualifiedName("public", name).path for name in (one, other)}
    assert len(paths) == len({one, other})


def test_names_with_unicode_escapes_are_read_as_postgresql_does() -> None:
    read = QualifiedName.parse(r'U&"d\0061t\+000061"."\0041"')
    assert read == QualifiedName("data", r"\0041")
    assert QualifiedName.parse(r'public.u&"a\\b"') == QualifiedName("public", r"a\b")


@pytest.mark.parametrize("name", [r'U&"\12"', r'U&"\D800"', r'U&"\+FFFFFF"', r'U&"a\"', "U&a", 'x&"a"'])
def test_what_is_no_name_is_said(name: str) -> None:
    with pytest.raises(ValueError, match=r"^not (a table name|an escape of U&)"):
        QualifiedName.parse(name)
