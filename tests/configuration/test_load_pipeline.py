"""The configuration file: what it becomes, and the one line for whatever is wrong with it."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, SecretStr

from cdc_assets.configuration.field_errors import model_in
from cdc_assets.configuration.load_pipeline import load_pipeline
from cdc_assets.configuration.models import PipelineModel
from spark_jobs.configuration import (
    Adopted,
    ColumnSelection,
    Lake,
    MessagePrefixes,
    Pipeline,
    Retention,
    Source,
    SparkOptions,
    Table,
    WindowLimits,
)
from spark_jobs.errors import ConfigurationError
from spark_jobs.options.column_options import ChosenType, ChosenTypes, ColumnOptions
from spark_jobs.options.folder_template import DEFAULT_FOLDERS, FolderTemplate
from spark_jobs.options.health_limits import HealthLimits, Threshold
from spark_jobs.options.schema_policy import SchemaPolicy
from spark_jobs.options.table_layout import NO_LAYOUT, TableLayout
from spark_jobs.options.table_mask import SALT_VARIABLE, TableMask
from spark_jobs.options.time_partitions import Days, Hours
from spark_jobs.postgres.command_dsn import CommandDsn
from spark_jobs.qualified_name import QualifiedName

SECRET = "postgresql://cdc:hunter2@db.example/shop"
WITHOUT_PASSWORD = "postgresql://cdc@db.example/shop"
# design §2.1, as it stands there
FILE = """\
type: cdc_assets.PostgresCdcComponent
attributes:
  name: shop                       # prefix of asset keys; default of slot and publication
  source:
    dsn: "{{ env.SHOP_DSN }}"      # libpq conninfo or URI; never printed, logged or stored
    slot: shop
    publication: shop
    plugin: pgoutput               # pgoutput | test_decoding
    streaming: "off"               # off | on | parallel   (YAML booleans mean the same)
    two_phase: false
    origin: any                    # any | none
    messages: false
    binary: false
  lake:
    path: /data/lake/shop          # any URI that driver and executors can reach
  windows: {max_bytes: 256MiB, max_per_run: 64}
  on_unrepresentable: error        # error | "null"      infinity dates, NaN in decimals, years beyond 9999 …
  on_rewrite: resnapshot           # resnapshot | error  DDL that rewrites rows without sending them
  tables:                          # names, or mappings; absent: every table of the publication
    - public.orders
    - name: public.items
      mode: mirror                 # mirror | soft_delete | history | append
      translation: {group_name: "{{ table.schema_name }}", owners: ["team:data"]}
  spark: {}                        # master / remote / config / jars: packages | provided | a folder
"""
OPTIONS = ColumnOptions(
    ChosenTypes(
        (
            ("Odd: one-", ChosenType("decimal", 38, 10)),
            ("doc", ChosenType("variant")),
            ("tags", ChosenType("array")),
        )
    ),
    (("a", "null"), ("b", "clamp")),
)
ORDERS, ITEMS = Table(QualifiedName("public", "orders")), QualifiedName("public", "items")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOP_DSN", SECRET)
    return tmp_path / "shop.yaml"


def load(file: Path, old: str = "", new: str = "") -> Pipeline:
    """The file of the design, with one thing changed."""
    assert old in FILE
    file.write_text(FILE.replace(old, new, 1) if old else FILE)
    return load_pipeline(file)


def test_file_of_the_design(file: Path) -> None:
    pipeline = load(file)
    assert pipeline == Pipeline(
        name="shop",
        source=Source(dsn=pipeline.source.dsn, slot="shop", publication="shop"),
        lake=Lake("/data/lake/shop"),
        windows=WindowLimits(256 << 20, 64),
        tables=(ORDERS, Table(ITEMS)),
        on_unrepresentable="error",
        on_rewrite="resnapshot",
        spark=SparkOptions(),
    )
    assert pipeline.source.dsn.get_secret_value() == SECRET
    assert "hunter2" not in repr(pipeline)


def test_a_tables_policy_goes_before_the_pipelines(file: Path) -> None:
    nothing = load(file)
    assert nothing.schema_policy(ITEMS) == nothing.on_schema_change == SchemaPolicy("follow", "follow", "snapshot")
    of_table = FILE.replace("mode: mirror", "on_schema_change: {add: ignore, drop: keep, retype: stop}")
    file.write_text(of_table.replace("spark: {}", "on_schema_change: {add: stop, drop: stop}"))
    pipeline = load_pipeline(file)
    assert pipeline.schema_policy(ORDERS.name) == SchemaPolicy("stop", "stop", "snapshot")
    assert pipeline.schema_policy(ITEMS) == SchemaPolicy("ignore", "keep", "stop")


def test_the_layout_of_a_table(file: Path) -> None:
    layout = "layout: {cluster_by: [day, id], properties: {delta.enableChangeDataFeed: true}}"
    expected = TableLayout(("day", "id"), (), (("delta.enableChangeDataFeed", "true"),))
    assert load(file, "mode: mirror", layout).table(ITEMS).options.layout == expected
    assert load(file).table(ITEMS).options.layout == NO_LAYOUT


def test_names_in_a_catalogue(file: Path) -> None:
    named = load(file, "  windows:", '    catalog: "shop_{schema}.{table}"\n  windows:')
    assert (named.lake.catalog, load(file).lake.catalog) == ("shop_{schema}.{table}", "")


def test_the_folders_of_tables(file: Path) -> None:
    assert load(file).lake.tables == DEFAULT_FOLDERS
    laid_out = load(file, "  windows:", '    tables: "bronze/{schema}__{table}"\n  windows:')
    assert laid_out.lake.table(ITEMS) == "/data/lake/shop/bronze/public__items"
    of_one_schema = load(file, "  windows:", '    tables: "{table}"\n  windows:')
    assert of_one_schema.lake.table(ITEMS) == "/data/lake/shop/items"


@pytest.mark.parametrize(
    ("tables", "schema"),
    [
        (["public.orders", "Orders2", "public.*"], "public"),
        (['"a*".x', '"a*".*'], "a*"),
        (["public.orders", "sales.orders"], None),
        (["public.*", "sal*.orders"], None),
        ([], None),
    ],
)
def test_a_template_without_the_schema_is_for_the_tables_of_one(
    file: Path, tables: list[str], schema: str | None
) -> None:
    document = yaml.safe_load(FILE)
    document["attributes"]["lake"]["tables"] = "{table}"
    document["attributes"]["tables"] = tables or None
    file.write_text(yaml.safe_dump(document))
    if schema is not None:
        assert load_pipeline(file).lake.tables == FolderTemplate("{table}", schema)
        return
    with pytest.raises(ConfigurationError, match=r"lake: tables: \{table\} is for the tables of one schema; put"):
        load_pipeline(file)


def test_least_file(file: Path) -> None:
    file.write_text(
        "type: cdc_assets.PostgresCdcComponent\n"
        "attributes: {name: shop, source: {dsn: host=x}, lake: {path: s3://bucket/shop/}}\n"
    )
    pipeline = load_pipeline(file)
    assert (pipeline.source.slot, pipeline.source.publication) == ("shop", "shop")
    assert pipeline.tables is None
    assert pipeline.lake.path == "s3://bucket/shop"


@pytest.mark.parametrize(
    ("old", "new", "attribute", "expected"),
    [
        ('streaming: "off"', "streaming: off", "source.streaming", "off"),
        ('streaming: "off"', "streaming: on", "source.streaming", "on"),
        ('streaming: "off"', "streaming: parallel", "source.streaming", "parallel"),
        ("two_phase: false", 'two_phase: "{{ env.YES }}"', "source.two_phase", True),
        ("    slot: shop\n", "    slot: shop\n    proto_version: 3\n", "source.proto_version", 3),
        ("publication: shop", 'publication: [shop, "Other one"]', "source.publications", ("shop", "Other one")),
        ("messages: false", "messages: true", "source.messages", True),
        ("messages: false", 'messages: "{{ env.YES }}"', "source.messages", True),
        ("messages: false", "messages: {prefixes: [a, b.*]}", "source.messages", MessagePrefixes(("a", "b.*"))),
        ("on_unrepresentable: error", "on_unrepresentable: null", "on_unrepresentable", "null"),
        ("256MiB", "1GiB", "windows.max_bytes", 1 << 30),
        ("256MiB", "8 KiB", "windows.max_bytes", 8 << 10),
        ("256MiB", "65536", "windows.max_bytes", 65536),
        ("256MiB", "0.5TiB", "windows.max_bytes", 1 << 39),
        ("spark: {}", "retention: {change_log: 2w}", "retention.change_log", timedelta(days=14)),
        ("spark: {}", "retention: {cuts: 36h}", "retention.cuts", timedelta(hours=36)),
        ("spark: {}", "retention: {cuts: 90000s}", "retention.cuts", timedelta(hours=25)),
        ("spark: {}", "retention: {}", "retention", Retention(timedelta(days=30), timedelta(days=30))),
        ("spark: {}", "health: {lag_bytes: {warn: 2GiB}}", "health.lag_bytes", Threshold(2 << 30, 10 << 30)),
        ("spark: {}", "health: {lag_bytes: {error: 1TiB}}", "health.lag_bytes", Threshold(1 << 30, 1 << 40)),
        # a default that contradicts what is written gives way
        ("spark: {}", "health: {lag_bytes: {error: 1KiB}}", "health.lag_bytes", Threshold(None, 1 << 10)),
        ("spark: {}", "health: {lag_bytes: {warn: 20GiB}}", "health.lag_bytes", Threshold(20 << 30)),
        ("spark: {}", "health: {lag_bytes: {error: null}}", "health.lag_bytes", Threshold(1 << 30)),
        ("spark: {}", "health: {lag_bytes: {warn: null, error: null}}", "health.lag_bytes", Threshold()),
        ("spark: {}", "health: {safe_wal_size: {error: 1MiB}}", "health.safe_wal_size", Threshold(1 << 30, 1 << 20)),
        ("spark: {}", "health: {lag_seconds: {warn: 15m, error: 1d}}", "health.lag_seconds", Threshold(900, 86400)),
        ("spark: {}", "health: {oldest_transaction: {}}", "health.oldest_transaction", Threshold(3600)),
        ("spark: {}", "health: {}", "health", HealthLimits()),
        ("spark: {}", "merge: {engine: auto}", "merge_engine", "auto"),
        ("spark: {}", "merge: {}", "merge_engine", "spark"),
        ("/data/lake/shop", "/data/lake/shop//", "lake.path", "/data/lake/shop"),
        ("/data/lake/shop", "file:///data/shop/", "lake.path", "file:///data/shop"),
        ("/data/lake/shop", "\"{{ env('LAKE', '/default') }}/shop\"", "lake.path", "/default/shop"),
        ("/data/lake/shop", "\"{{ env.LAKE or '/other' }}\"", "lake.path", "/other"),
        ("spark: {}", "spark: {config: {a.b: true, c: 3}}", "spark.config", (("a.b", "true"), ("c", "3"))),
        ("spark: {}", "spark: {jars: /jars, master: 'local[2]'}", "spark.master", "local[2]"),
        ("spark: {}", "spark: {resource: my_spark}", "spark", SparkOptions()),
        (
            "mode: mirror",
            'columns: {exclude: [email, "Odd, one"]}',
            "tables",
            (ORDERS, Table(ITEMS, columns=ColumnSelection(exclude=("email", "Odd, one")))),
        ),
        (
            "spark: {}",
            "defaults: {mode: history, key: [id]}",
            "tables",
            (Table(ORDERS.name, "history", key=("id",)), Table(ITEMS, "mirror", key=("id",))),
        ),
        (
            "mode: mirror",
            "metadata_columns: [_commit_time, _commit_lsn]",
            "tables",
            (ORDERS, Table(ITEMS, metadata_columns=("_commit_time", "_commit_lsn"))),
        ),
        (
            "mode: mirror",
            "mode: append\n      snapshot: none",
            "tables",
            (ORDERS, Table(ITEMS, "append", begins_empty=True)),
        ),
        (
            "mode: mirror",
            'adopt: "s3://lake/{schema}_{table}/"',
            "tables",
            (ORDERS, Table(ITEMS, adopt=Adopted(f"s3://lake/{ITEMS.nspname}_{ITEMS.relname}"))),
        ),
        (
            "mode: mirror",
            "adopt: {path: /lake/items, columns: {a: b}}",
            "tables",
            (ORDERS, Table(ITEMS, adopt=Adopted("/lake/items", (("a", "b"),)))),
        ),
        (
            "spark: {}",
            "defaults: {metadata_columns: [_commit_time]}",
            "tables",
            (Table(ORDERS.name, metadata_columns=("_commit_time",)), Table(ITEMS, metadata_columns=("_commit_time",))),
        ),
        (
            "mode: mirror",
            "columns: {include: [id]}",
            "tables",
            (ORDERS, Table(ITEMS, columns=ColumnSelection(include=("id",)))),
        ),
        (
            "mode: mirror",
            (
                'types: {"Odd: one-": "decimal( 38, 10)", tags: array, doc: variant}\n'
                "      on_unrepresentable: {a: null, b: clamp}"
            ),
            "tables",
            (ORDERS, Table(ITEMS, options=OPTIONS)),
        ),
        ("    slot: shop\n", "", "source.slot", "shop"),
        ("type:", "requirements: {env: [X]}\npost_processing: {}\ntype:", "name", "shop"),
        ("type:", "type: other.Component\n---\ntype:", "name", "shop"),
    ],
)
def test_accepted(
    file: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, attribute: str, expected: object
) -> None:
    monkeypatch.setenv("YES", "true")
    value: object = load(file, old, new)
    for part in attribute.split("."):
        value = getattr(value, part)
    assert value == expected


def test_a_command_for_the_password(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DSN", WITHOUT_PASSWORD)
    monkeypatch.setenv("DB_HOST", "db.example")
    command = 'password_command: [token, --host, "{{ env.DB_HOST }}", --port, 5432, " a b "]'
    source = load(file, "    slot: shop", f"    {command}\n    slot: shop").source
    assert isinstance(source.dsn, CommandDsn)
    assert source.dsn.command.words == ("token", "--host", "db.example", "--port", "5432", " a b ")
    assert source.dsn.get_secret_value() == WITHOUT_PASSWORD
    assert "token" not in repr(source)
    assert type(load(file).source.dsn) is SecretStr


def test_columns_are_not_for_test_decoding(file: Path) -> None:
    text = FILE.replace("plugin: pgoutput", "plugin: test_decoding").replace("    publication: shop\n", "")
    file.write_text(text.replace("mode: mirror", "columns: {exclude: [email]}"))
    with pytest.raises(
        ConfigurationError, match=r"tables: columns of public\.items: plugin: test_decoding sends every"
    ):
        load_pipeline(file)


def test_masks_and_their_salt(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masked = ("mode: mirror", 'mask: {email: sha256, "E mail": sha256}')
    for salt in (None, "", "  "):
        monkeypatch.delenv(SALT_VARIABLE, raising=False)
        if salt is not None:
            monkeypatch.setenv(SALT_VARIABLE, salt)
        with pytest.raises(ConfigurationError) as caught:
            load(file, *masked)
        said = f"{file}: tables: mask of public.items: the environment variable {SALT_VARIABLE} is not set, or is empty"
        assert str(caught.value).startswith(said)
        assert load(file).masks == {}, "who masks nothing needs no salt"
    monkeypatch.setenv(SALT_VARIABLE, "hunter2")
    pipeline = load(file, *masked)
    assert pipeline.masks == {ITEMS: TableMask(("email", "E mail"), b"hunter2")}
    assert "hunter2" not in repr(pipeline) + repr(pipeline.masks)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("binary: false", "binary: true", "source.binary: true sends no text to hash; use binary: false"),
        ("plugin: pgoutput", "plugin: test_decoding", "plugin: test_decoding prints whole rows as one text"),
    ],
)
def test_masks_need_values_as_text_of_their_own(
    file: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    monkeypatch.setenv(SALT_VARIABLE, "salt")
    text = FILE.replace("mode: mirror", "mask: {email: sha256}").replace("    publication: shop\n", "")
    file.write_text(text.replace(old, new))
    with pytest.raises(ConfigurationError, match=rf"shop\.yaml:\d+: .*tables: mask of public\.items: {said}"):
        load_pipeline(file)
    file.write_text(text)
    source = load_pipeline(file).source
    wrong = replace(source, binary=True) if "binary" in new else replace(source, plugin="test_decoding")
    with pytest.raises(ConfigurationError, match=said):
        replace(load_pipeline(file), source=wrong)


def test_hashes_have_no_other_type(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SALT_VARIABLE, "salt")
    with pytest.raises(ConfigurationError, match="types: column email is masked, and hashes are strings"):
        load(file, "mode: mirror", "mask: {email: sha256}\n      types: {email: array}")


def test_relative_lake_lies_beside_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert load(file, "/data/lake/shop", "lake").lake.path == str(file.parent / "lake")


# in each row: the line of the error, what is written in place of what, and how the error begins
REFUSED = [
    (old.replace("\\n", "\n"), new.replace("\\n", "\n"), int(line), said)
    for line, old, new, said in (
        row.split(" | ") for row in (Path(__file__).parent / "refused.txt").read_text().splitlines()
    )
]


def test_time_partitions(file: Path) -> None:
    assert load(file, "", "").periods == ()
    given = "{daily: {timezone: Europe/Berlin, hour: 6, start: 2026-11-01}, hourly: {}}"
    pipeline = load(file, "  windows:", f"  time_partitions: {given}\n  windows:")
    assert pipeline.periods == (Days("Europe/Berlin", 6), Hours("UTC"))
    with pytest.raises(ConfigurationError, match=r"time_partitions\.hourly\.start: expected a date"):
        load(file, "  windows:", "  time_partitions: {hourly: {start: 2026-11-31}}\n  windows:")


@pytest.mark.parametrize(("old", "new", "line", "said"), REFUSED)
def test_refused_in_one_line(file: Path, old: str, new: str, line: int, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(file, old, new)
    message = str(caught.value)
    assert message.startswith(f"{file}:{line}: {said}")
    assert "\n" not in message
    assert "hunter2" not in message
    assert caught.value.exit_code == 2


def test_a_table_of_the_source_with_the_name_of_a_further_mode_is_refused(file: Path) -> None:
    said = (
        r"shop.yaml: tables: public.orders__history is a table of the source, and what public.orders is called in mode"
    )
    with pytest.raises(ConfigurationError, match=said):
        load(file, "- public.orders", "- public.orders__history\n    - {name: public.orders, modes: [mirror, history]}")


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, new, *_ in REFUSED])
def test_what_an_error_suggests_is_accepted(file: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    monkeypatch.setenv(SALT_VARIABLE, "salt")
    with pytest.raises(ConfigurationError) as caught:
        load(file, old, new)
    what, hint = caught.value.what, caught.value.hint
    place = re.match(rf"{file}:\d+: (?:attributes\.)?([^:]+): ", what)
    assert place is not None
    path = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", place[1])]
    document = yaml.safe_load(file.read_text())
    if guess := re.search(r"did you mean (\w+)\?", what):
        mended = document if path == ["atributes"] else within(document["attributes"], path[:-1])
        mended[guess[1]] = mended.pop(path[-1])
    elif hint.startswith("write "):
        ((field, form),) = yaml.safe_load(hint.removeprefix("write ")).items()
        while path[-1] != field:
            path.pop()
        within(document["attributes"], path[:-1])[field] = form
    else:
        assert not re.search("as in|such as", what), "an example belongs in the hint"
        return
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    load_pipeline(file)


def within(value: Any, path: Sequence[str | int]) -> Any:
    """What stands at the path; of a table that is only its name, the mapping that means the same."""
    for place, part in enumerate(path):
        if isinstance(value[part], str) and place == len(path) - 1:
            value[part] = {"name": value[part]}
        value = value[part]
    return value


def test_every_example_of_a_field_is_accepted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SALT_VARIABLE, "salt")
    load(file)
    plain = yaml.safe_load(file.read_text())
    plain["attributes"]["tables"] = plain["attributes"]["tables"][1:]
    monkeypatch.setenv("SHOP_DSN", WITHOUT_PASSWORD)  # which password_command is for
    seen = 0
    for path, example in examples_in(PipelineModel):
        document = copy.deepcopy(plain)
        at = document["attributes"]
        if path[:2] == ("lake", "storage"):
            at["lake"] = {"path": "s3://bucket/shop"}  # no folder has one
        for part in path[:-1]:
            at[part] = at.get(part) or {}
            at = at["tables"][0] if part == "tables" else at[part]
        if path[-1] == "modes":
            at.pop("mode", None)
        if path[-2:] == ("adopt", "columns"):
            at["path"] = "/lake/orders"
        at[path[-1]] = example
        file.write_text(yaml.safe_dump(document))
        load_pipeline(file)
        seen += 1
    assert seen > 20


def examples_in(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, field in model.model_fields.items():
        for example in field.examples or ():
            yield (*path, name), example
        if inner := model_in(field.annotation):
            yield from examples_in(inner, (*path, name))


@pytest.mark.parametrize("setting", ["streaming: parallel", "binary: true", "publication: own", "proto_version: 1"])
def test_settings_of_pgoutput_are_refused_with_test_decoding(file: Path, setting: str) -> None:
    without = FILE.replace("    publication: shop\n", "")
    for field in ("streaming", "binary"):
        without = re.sub(rf"    {field}: .*\n", "", without)
    file.write_text(without.replace("plugin: pgoutput", "plugin: test_decoding"))
    assert not load_pipeline(file).source.has_publications
    file.write_text(without.replace("plugin: pgoutput", f"plugin: test_decoding\n    {setting}"))
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(file)
    assert f"source: {setting} is not for plugin: test_decoding; leave it out" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "type: dlt.Component\nattributes: {}",
            ": type is dlt.Component: expected type: cdc_assets.PostgresCdcComponent",
        ),
        ("attributes: {}", ": type is missing: expected"),
        ("", ": type is missing: expected"),
        ("- a", ":1: not YAML: expected fields, as in name: value"),
        ("a: hunter2 [\nb: [hunter2", ":2: not YAML: "),
        ("type: x\ntype: y", ":2: not YAML: type is written twice"),
        ("a:\n\tb: 1", ":2: not YAML: found character '\\t' that cannot start any token: indent with spaces"),
        (
            "a:\n  b: 1\n c: 1",
            ":3: not YAML: expected <block end>, but found '<block mapping start>': begin the line at the column of",
        ),
        ("a: {{ env.A }}", ":1: not YAML: found unhashable key: put a template in quotes"),
        ("a: {{ env.A }}/b", ":1: not YAML: expected <block end>, but found '<scalar>': put a template in quotes"),
        ("a: 'it's'", ":1: not YAML: expected <block end>, but found '<scalar>': put the value in quotes"),
        ("a:\n- b\n  c: d", ":3: not YAML: mapping values are not allowed here: begin the line at the column of"),
        ("a:\n- *.b", ":2: not YAML: expected alphabetic or numeric character, but found '.': put a pattern in quotes"),
        ("type: cdc_assets.PostgresCdcComponent", ":1: attributes: expected a mapping"),
        (f"{FILE}---\n{FILE}", ": holds 2 pipelines: give each a file of its own"),
    ],
)
def test_not_a_configuration(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(file)
    assert str(caught.value).startswith(f"{file}{said}")
    assert "hunter2" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        load_pipeline(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match=r": cannot be read: Is a directory$"):
        load_pipeline(tmp_path)
    (tmp_path / "shop.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r": cannot be read: it is not UTF-8$"):
        load_pipeline(tmp_path / "shop.yaml")


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("cdc_assets", ("dagster", "pyspark", "delta", "psycopg", "deltalake", "pyarrow", "adbc_driver_postgresql")),
        (
            "cdc_assets.configuration.load_pipeline",
            ("dagster", "pyspark", "delta", "psycopg", "deltalake", "adbc_driver_postgresql"),
        ),
        ("cdc_assets.component", ("pyspark", "delta", "psycopg", "deltalake", "adbc_driver_postgresql")),
    ],
)
def test_import_is_light(module: str, unwanted: tuple[str, ...]) -> None:
    program = f"import sys, {module}; print(*[m for m in {unwanted!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


class TestPatterns:
    """The tables are known only to the source; what applies to them is in the file."""

    @pytest.fixture
    def patterned(self, file: Path) -> Callable[..., Pipeline]:
        def load_with(**attributes: object) -> Pipeline:
            load(file)
            document = yaml.safe_load(file.read_text())
            document["attributes"].update(attributes)
            file.write_text(yaml.safe_dump(document))
            return load_pipeline(file)

        return load_with

    def test_settings_are_known_by_name(self, patterned: Callable[..., Pipeline]) -> None:
        pipeline = patterned(tables=["public.*", {"name": "*.log", "mode": "append"}], exclude=["public.old_*"])
        assert pipeline.tables is None
        modes = [pipeline.table(QualifiedName("public", name)).mode for name in ("orders", "log")]
        assert modes == ["mirror", "append"]
        assert pipeline.patterns is not None
        names = [QualifiedName("public", name) for name in ("old_log", "log", "orders")]
        assert pipeline.patterns.of(names) == (names[1], names[2])

    def test_who_has_not_asked_the_source_knows_no_masks(
        self, patterned: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SALT_VARIABLE, "salt")
        pipeline = patterned(tables=["public.*"], defaults={"mask": {"email": "sha256"}})
        with pytest.raises(AssertionError):
            _ = pipeline.masks

    def test_entries_that_contradict_each_other_are_told_by_table(
        self, patterned: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SALT_VARIABLE, "salt")
        columns = {"name": "public.*", "columns": {"exclude": ["email"]}}
        masked = {"mask": {"email": "sha256"}}
        pipeline = patterned(tables=[columns], defaults=masked)
        with pytest.raises(ConfigurationError, match=r"^tables: public\.t: mask: column email is left out by columns"):
            pipeline.table(QualifiedName("public", "t"))
        with pytest.raises(ConfigurationError, match=r"shop\.yaml: tables: public\.t: mask: column email is left out"):
            patterned(tables=[{**columns, "name": "public.t"}], defaults=masked)

    @pytest.mark.parametrize(("field", "value"), [("mask", {"email": "sha256"}), ("columns", {"include": ["id"]})])
    def test_what_test_decoding_cannot_do(
        self, patterned: Callable[..., Pipeline], field: str, value: dict[str, object]
    ) -> None:
        source = {"dsn": "host=db", "plugin": "test_decoding"}
        with pytest.raises(ConfigurationError, match=rf"defaults: {field}: plugin: test_decoding"):
            patterned(tables=["public.*"], source=source, defaults={field: value})


SHORT = """\
type: cdc_assets.PostgresCdcComponent
attributes:
  name: shop
  source:
    dsn: dbname=shop
  lake: {path: lake}
  tables:
  - public.orders
"""


@pytest.mark.parametrize(
    ("misplaced", "hint"),
    [
        (SHORT.replace("    dsn", "  dsn"), "dsn is a field of source: indent it below"),
        (SHORT.replace("\n  ", "\n"), "name is a field of attributes: indent it below"),
        (SHORT.replace("orders", "orders: {mode: append}"), "write - name: public.orders, and its fields below name"),
        (f"{SHORT}  mode: append\n", "mode is a field of defaults and of tables: indent it below"),
        (f"{SHORT}  warn: 1GiB\n", ""),
    ],
)
def test_a_field_among_those_of_another_is_told_where_it_belongs(file: Path, misplaced: str, hint: str) -> None:
    file.write_text(misplaced)
    with pytest.raises(ConfigurationError, match="unknown field") as caught:
        load_pipeline(file)
    assert caught.value.hint == hint
