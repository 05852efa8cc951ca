"""The engine's advice as Dagster shows it: no command for a shell that a user of the UI may not have."""

from __future__ import annotations

import pytest

from cdc_assets.assets.untranslated_specs import snapshot_key
from cdc_assets.failures import Remedies, description_of, failure_of, for_dagster
from spark_jobs.errors import BreakError, LakeError, new_snapshot
from spark_jobs.qualified_name import QualifiedName

ITEMS = QualifiedName("public", "items")
REMEDIES = Remedies("shop_recover", {ITEMS: snapshot_key("shop", ITEMS)})


@pytest.mark.parametrize(
    ("table", "asset"),
    [
        (QualifiedName("public", "items"), "shop/snapshot/public/items"),
        (QualifiedName("public", 'Bob\'s "best"'), "shop/snapshot/public/Bob_s__best_"),
        (QualifiedName("public", "two\nlines"), "shop/snapshot/public/two_lines"),
    ],
)
def test_a_new_snapshot_is_an_asset(table: QualifiedName, asset: str) -> None:
    said = for_dagster(
        f"if need be, {new_snapshot(table)}; then go on", Remedies("shop_recover", {table: snapshot_key("shop", table)})
    )
    assert said == f"if need be, take a new snapshot of this table: materialise the asset {asset}; then go on"


def test_a_command_that_names_no_table_stays_as_it_is() -> None:
    said = "run postgres-cdc snapshot --table 'public.\"Bob' first"
    assert for_dagster(said, REMEDIES) == said


def test_a_failure_names_the_job_and_the_asset() -> None:
    broken, unreadable = BreakError("slot shop is gone"), LakeError("no table", hint=new_snapshot("public.items"))
    said = str(failure_of([broken, unreadable], REMEDIES).description)
    assert "the job `shop_recover`" in said
    assert "the asset shop/snapshot/public/items" in said
    assert "postgres-cdc" not in said


def test_a_description_has_the_hint_in_a_paragraph_of_its_own() -> None:
    text = description_of(BreakError("slot shop is gone"), REMEDIES)
    assert text.startswith("slot shop is gone\n\nhint: the job `shop_recover` ")
    assert description_of(BreakError("slot shop is gone", hint=""), REMEDIES) == "slot shop is gone"
