"""The text of a new configuration file holds what it was made of, whatever the names and findings are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_assets.configuration.database_name import pipeline_name
from cdc_assets.configuration.found_database import FoundDatabase, FoundTable
from cdc_assets.configuration.load_pipeline import COMPONENT_TYPE, load_pipeline
from cdc_assets.configuration.new_configuration import configuration_text
from spark_jobs.doctor.checks import Verdict, fail
from spark_jobs.qualified_name import QualifiedName

_NAMES = st.text(
    st.one_of(st.sampled_from("""aZ1_ .:,#-&*!|>'"%@`{}[]?\n\t\\"""), st.characters(exclude_categories=["Cs"])),
    min_size=1,
).filter(lambda name: "\0" not in name)


def text_of(*tables: FoundTable, name: str = "shop", found: str = "") -> str:
    problems = (fail("source", "role", found, found),) if found else ()
    return configuration_text(
        head=["a file"],
        type_name=COMPONENT_TYPE,
        name=name,
        variable="SHOP_DSN",
        lake="lake",
        database=FoundDatabase(name, "shop", problems, tables),
    )


@given(st.sets(st.builds(QualifiedName, _NAMES, _NAMES), min_size=1, max_size=3), _NAMES)
@example({QualifiedName("public", '{{ env.HOME }} "{% raw %}'), QualifiedName("{# x #}", "y")}, "a\n  b: c\ufffe")
def test_every_name_is_read_back(names: set[QualifiedName], found: str) -> None:
    tables = [FoundTable(name, 8192, Verdict.OK, found) for name in names]
    refused = FoundTable(QualifiedName("public", found), 0, Verdict.FAIL, found, found)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("SHOP_DSN", "host=db dbname=shop")
        file = Path(folder, "shop.yaml")
        file.write_text(text_of(*tables, refused, found=found), encoding="utf-8")
        read = load_pipeline(file).tables
        assert {table.name for table in read or ()} == names
        file.write_text(file.read_text(encoding="utf-8").replace("    # - ", "    - "), encoding="utf-8")
        assert {table.name for table in load_pipeline(file).tables or ()} == {*names, refused.name}


@pytest.mark.parametrize("name", ["Web Shop", "123", "1_0", "ON", "null", "1e3", "é", "", "x" * 80])
def test_a_pipelines_name_is_a_text_that_a_slot_may_have(name: str) -> None:
    read = yaml.safe_load(
        text_of(FoundTable(QualifiedName("public", "t"), 0, Verdict.OK, ""), name=pipeline_name(name))
    )
    assert read["attributes"]["name"] == pipeline_name(name)
    assert 1 <= len(pipeline_name(name)) <= 63
