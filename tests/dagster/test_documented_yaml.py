"""Every piece of configuration that README, docs and examples show is accepted: by the command, by the schema that
``dg check yaml`` applies, and by Dagster when it loads the code location."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from cdc_assets import PostgresCdcComponent
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.configuration.models import PipelineModel
from cdc_assets.configuration.source_model import SourceModel
from cdc_assets.configuration.table_model import TableModel
from spark_jobs.options.table_mask import SALT_VARIABLE
from tests.dagster.component_project import dg_command, write_defs
from tests.dagster.shop_component import loaded

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FILES = [
    ROOT / "examples" / "shop" / "shop" / "defs" / "shop" / "defs.yaml",
    ROOT / "deploy" / "shop.yaml",
    *sorted((ROOT / "orchestration" / "defs").rglob("*.yaml")),
]
ENVIRONMENT = {
    "SHOP_DSN": "host=db.example dbname=shop",
    "SHOP_LAKE": "/data/lake",
    "SHOP_FIRST_DAY": "2026-11-20",
    SALT_VARIABLE: "a long random text",
    "POD_IP": "10.0.0.7",
    "POD_NAME": "shop-cdc-0",
}
ASSET_ATTRIBUTES = ("key", "group_name")
LEAST: dict[str, Any] = {"name": "shop", "source": {"dsn": ENVIRONMENT["SHOP_DSN"]}, "lake": {"path": "/data/lake"}}
OF_OTHERS = {"execution", "ops", "scrape_configs"}  # what Dagster's launchpad and Prometheus take


def shown() -> Iterator[Any]:
    """Fenced blocks, code in a line of text, files."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for number, block in enumerate(re.findall(r"```ya?ml\n(.*?)```", text, re.DOTALL), 1):
            yield pytest.param(block, id=f"{page.name}-block{number}")
        for code in re.findall(r"`([a-z_]+: [^`\n]*[{\[][^`\n]*)`", text):
            if "..." not in code:
                yield pytest.param(code, id=f"{page.name}-{code}")
    for file in FILES:
        yield pytest.param(file.read_text(encoding="utf-8"), id=str(file.relative_to(ROOT)))


def whole(text: str) -> dict[str, Any] | None:
    """The file that the user would have: what is shown, in its place. None if it is no configuration of ours."""
    written = yaml.safe_load(text)
    if isinstance(written, list) or not OF_OTHERS.isdisjoint(written):
        return None
    if "attributes" not in written:
        written = {"attributes": _in_its_place(written)}
    attributes = {**LEAST, "tables": ["public.orders"], **written["attributes"]}
    return {"type": "cdc_assets.PostgresCdcComponent", **written, "attributes": attributes}


def _in_its_place(written: dict[str, Any]) -> dict[str, Any]:
    (field, *_) = written
    if field in ASSET_ATTRIBUTES and not isinstance(written[field], list):
        return {"tables": [{"name": "public.orders", "translation": written}]}
    # on_unrepresentable is a policy of the pipeline, and a mapping of a table
    if field in TableModel.model_fields and isinstance(written[field], dict):
        return {"tables": [{"name": "public.orders", **written}]}
    if field in SourceModel.model_fields:
        return {"source": {**LEAST["source"], **written}}
    assert field in PipelineModel.model_fields, f"{field} is no field of the configuration"
    return written


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("text", shown())
def test_what_is_shown_is_accepted(text: str, tmp_path: Path) -> None:
    document = whole(text)
    if document is None:
        return
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    load_pipeline(file)
    schema = PostgresCdcComponent.get_model_cls().model_json_schema()  # type: ignore[union-attr]
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document["attributes"])] == []
    PostgresCdcComponent.from_attributes_dict(attributes=document["attributes"]).definitions()


@pytest.mark.slow
@pytest.mark.nightly  # by day its parts, one by one, as above, and one file by dg: test_component
def test_dg_checks_what_is_shown(project: Path) -> None:
    """All in one code location; each has a database of its own, as their names are those of examples."""
    documents = [document for parameter in shown() if (document := whole(parameter.values[0]))]
    for number, document in enumerate(documents):
        document["attributes"] |= {"name": f"shop{number}", "source": {"dsn": f"dbname=shop{number}"}}
        document["attributes"].get("spark", {}).pop("resource", None)  # the project's own
        write_defs(project, document, f"shop{number}")
    assert len(documents) > 10
    checked = dg_command(project, "check", "yaml", **ENVIRONMENT)
    assert "validated successfully" in checked.stdout, checked.stdout
    loaded = dg_command(project, "check", "defs", **ENVIRONMENT)
    assert "All definitions loaded successfully" in loaded.stdout, loaded.stdout + loaded.stderr


def test_post_processing_does_what_its_comments_say() -> None:
    [text] = [text for (text,) in (each.values for each in shown()) if "post_processing:" in str(text)]
    document = whole(str(text))
    assert document is not None
    specs = {spec.key.to_user_string(): spec for spec in loaded(document)[1].resolve_all_asset_specs()}
    assert {key for key, spec in specs.items() if spec.owners} == {"shop/public/orders", "shop/public/customers"}
    assert [key for key, spec in specs.items() if spec.automation_condition] == ["shop/maintenance"]
