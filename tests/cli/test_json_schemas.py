"""The JSON Schemas in the package are those of the reports, for every command that prints one."""

from __future__ import annotations

import jsonschema
import pytest

from cdc_assets.cli.commands import SUMMARIES
from tests.cli.json_schemas import COMMAND, FOLDER, REPORTS, schema_file, schema_of, text_of

# they print the configuration, and the progress of a trial
_WITHOUT = {"config", "demo"}


@pytest.mark.parametrize("command", REPORTS)
def test_it_is_current(command: str) -> None:
    assert schema_file(command).read_text() == text_of(command), f"run {COMMAND}"
    jsonschema.Draft202012Validator.check_schema(schema_of(command))


def test_every_command_has_one() -> None:
    assert {command.split()[0] for command in REPORTS} >= set(SUMMARIES) - _WITHOUT
    assert {path for path in FOLDER.iterdir() if path.suffix == ".json"} == set(map(schema_file, REPORTS))


def test_a_document_without_a_field_is_refused() -> None:
    validator = jsonschema.Draft202012Validator(schema_of("config validate"))
    validator.validate({"file": "shop.yaml", "pipeline": "shop", "tables": None})
    validator.validate({"error": {"type": "LakeError", "message": "m", "hint": ""}})
    for wrong in ({"file": "shop.yaml", "pipeline": "shop"}, {"file": 1, "pipeline": "shop", "tables": 3}, {}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)
