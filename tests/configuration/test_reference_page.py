"""docs/configuration.md says what the models say, of every field, and what it says is so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from cdc_assets.configuration.engine_form import pipeline_of
from cdc_assets.configuration.models import PipelineModel
from spark_jobs.configuration import PLUGIN_SETTINGS
from spark_jobs.qualified_name import QualifiedName
from tests.configuration.reference_page import BLOCKS, COMMAND, KINDS, MORE, PAGE, documented, in_yaml, page

FIELDS = [(model, name, hint) for model in BLOCKS.values() for name, hint in documented(model)]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"run {COMMAND} to write docs/configuration.md anew"


def test_every_block_of_the_file_is_on_the_page() -> None:
    assert set(_models(PipelineModel)) == set(BLOCKS.values())


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
        for _, of_field in documented(hint):
            yield from _models(of_field)
    for part in get_args(hint):
        yield from _models(part)


@pytest.mark.parametrize(("model", "name", "hint"), FIELDS)
def test_a_field_is_described_and_its_example_accepted(model: type[BaseModel], name: str, hint: Any) -> None:
    field = model.model_fields[name]
    assert field.description is not None
    assert field.description.endswith(".")
    for example in field.examples or ():
        TypeAdapter(hint).validate_python(example)
        assert in_yaml(example) in page()


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_is_what_its_words_say(kind: Any) -> None:
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    for value in KINDS[kind].accepted:
        adapter.validate_python(value)
    for value in KINDS[kind].refused:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_the_example_with_patterns_is_accepted() -> None:
    """The other examples are loaded as Dagster loads them, which asks the source for the tables of this one."""
    (block,) = re.findall(r"```\n(defaults: .*?)```", page(), re.DOTALL)
    model = PipelineModel.model_validate(
        {"name": "shop", "source": {"dsn": "dbname=shop"}, "lake": {"path": "lake"}, **yaml.safe_load(block)}
    )
    pipeline = pipeline_of(model, Path())
    assert pipeline.patterns is not None
    names = [QualifiedName("public", name) for name in ("audit_log", "items", "orders")]
    modes = [pipeline.table(name).mode for name in pipeline.patterns.of(names)]
    assert modes == ["history", "mirror"]


def test_what_a_plugin_refuses_is_said() -> None:
    said = BLOCKS["`source`"].model_fields["plugin"].description or ""
    assert [field for field in PLUGIN_SETTINGS["test_decoding"].refused if field not in said] == []


def test_further_pages_are_of_fields() -> None:
    assert set(MORE) <= {(model, name) for model, name, _ in FIELDS}
