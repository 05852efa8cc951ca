"""docs/promises.md names what the code has: no more, and nothing less."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cdc_assets
from cdc_assets import blueprint
from cdc_assets.cli.invocation import INTERRUPTED, USAGE
from spark_jobs.change_log.schema import CHANGE_LOG_SCHEMA, RowKind
from spark_jobs.lake.cuts import CUTS_SCHEMA
from spark_jobs.lake.generation import Generation
from spark_jobs.lake.unrepresentable import UNREPRESENTABLE_SCHEMA
from spark_jobs.logicalrep.lsn import Lsn, Window
from spark_jobs.writers.table_commit import ModeOrigin, Provenance
from tests.dagster.shop_component import DSN, body, keys_and_deps, loaded

PAGE = (Path(__file__).parents[1] / "docs" / "promises.md").read_text()
CODE = [path.read_text() for path in Path(cdc_assets.__file__).parent.rglob("*.py")]


def section(title: str) -> str:
    return re.split(r"\n##+ ", PAGE.partition(f"# {title}\n")[2])[0]


def named(text: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", text)


def test_the_columns_of_the_change_log() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", section("The change log"), re.MULTILINE)
    assert [name for row in rows for name in named(row)] == CHANGE_LOG_SCHEMA.names
    kinds = next(line for line in section("The change log").splitlines() if line.startswith("| `kind`"))
    assert set(re.findall(r"`([A-Z])`", kinds)) == {kind.value for kind in RowKind}


def test_the_columns_of_cuts() -> None:
    assert named(section("Cuts").partition(".")[0]) == CUTS_SCHEMA.names


def test_the_columns_of_records_of_what_did_not_fit() -> None:
    types = (Path(__file__).parents[1] / "docs" / "types.md").read_text()
    listed = types.partition("### What did not fit")[2].partition("\n- ")[0]
    rows = re.findall(r"^\| (`.*?) \|", listed, re.MULTILINE)
    assert {name for row in rows for name in named(row)} == {*UNREPRESENTABLE_SCHEMA.names}


def test_the_keys_of_user_metadata() -> None:
    start = Lsn(0)
    origin = ModeOrigin("mirror", 0, start)
    written = Provenance(1, "shop", Generation(start), 1, 1, start, start, 1, 1, mode_changed=origin).user_metadata()
    listed = section("userMetadata").partition("The value")[0]
    assert set(named(listed)) == set(json.loads(written))


def test_the_exit_codes() -> None:
    codes = re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)
    assert codes == ["0", "1", str(USAGE), str(INTERRUPTED), "143"]


def test_the_python_interface() -> None:
    assert set(re.findall(r"`(\w+)`", section("Python"))) - {"what", "hint", "exit_code", "cdc_assets"} == set(
        cdc_assets.__all__
    )


def test_the_asset_keys_of_dagster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", DSN)
    source = {"dsn": "{{ env.SHOP_DSN }}", "messages": True}
    _, defs = loaded(body(source=source, tables=["public.orders"], time_partitions={"daily": {}, "hourly": {}}))
    words = {"shop": "name", "shopdb": "database", "public": "schema", "orders": "table"}
    made = {tuple(words.get(part, part) for part in key.split("/")) for key in keys_and_deps(defs)}
    listed = section("Dagster").partition("**Asset keys**")[2].partition("\n- ")[0]
    assert {tuple(key.split(", ")) for key in re.findall(r"`\[(.*?)\]`", listed)} == made


def test_the_checks_of_dagster() -> None:
    listed = section("Dagster").partition("**Checks**")[2].partition("\n- ")[0]
    assert {*named(listed)} == {check for name, check in vars(blueprint).items() if name.endswith("_CHECK")}


def test_the_metadata_of_dagster() -> None:
    listed = section("Dagster").partition("**Metadata**")[2].partition("**Jobs")[0]
    names = re.findall(r"`([a-z_/]+)`", listed)
    assert len(names) > 15
    missing = [name for name in names if not any(f'"{name}"' in text for text in CODE)]
    assert missing == []


def test_the_partition_keys_of_dagster() -> None:
    [key] = re.findall(r"`([0-9A-F/]+-[0-9A-F/]+)`", section("Dagster"))
    bounds = Window.parse(key)
    assert Window(bounds.lo, bounds.hi).key == key
