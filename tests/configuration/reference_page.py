"""docs/configuration.md, from the models of the configuration file.

``python -m tests.configuration.reference_page`` writes the page anew; ``test_reference_page`` compares it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from cdc_assets.configuration import fields, health_model, models, source_model
from cdc_assets.configuration.automation_model import AutomationModel
from cdc_assets.configuration.op_model import OpModel, RetryPolicyModel
from cdc_assets.configuration.schema_policy_model import SchemaPolicyModel
from cdc_assets.configuration.table_model import AdoptModel, ColumnsModel, LayoutModel, TableDefaultsModel, TableModel
from cdc_assets.configuration.time_partitions_model import DailyModel, HourlyModel, TimePartitionsModel
from cdc_assets.configuration.units import duration_text, size_text

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
COMMAND = "python -m tests.configuration.reference_page"


@dataclass(frozen=True)
class Kind:
    """A type of ``fields``, in a reader's words, with values that it accepts and refuses."""

    words: str
    accepted: tuple[object, ...]
    refused: tuple[object, ...]


# what a validator says, said for a reader; the test tries the values
KINDS: Mapping[Any, Kind] = {
    fields.Dsn: Kind("connection string", ("host=db.internal dbname=shop", "postgresql:///shop"), ("",)),
    fields.SlotName: Kind(
        "slot name: 1 to 63 lower-case letters, digits and underscores", ("shop_1",), ("Shop", "a-b", "")
    ),
    fields.Publication: Kind(
        "name of 1 to 63 bytes, or a list of names", ("shop", ["shop", "Odd name"]), ("", [], ["a", "a"])
    ),
    fields.KeyPart: Kind("text of letters, digits and underscores", ("eu",), ("e-u", "")),
    fields.Size: Kind(
        "size: a number, in bytes or with B, KiB, MiB, GiB or TiB; at least 1KiB",
        (1024, "1KiB", "256MiB", "2 GiB", "1.5TiB"),
        (1023, "1KB", "-1GiB", "1s"),
    ),
    fields.Seconds: Kind(
        "duration: a number, in seconds or with ms, s, m, h, d or w; whole seconds",
        (0, "0s", "15m", "1.5h", "1d", "2w", "2000ms"),
        (-1, "500ms", "1min", "1KiB", True, "36501d"),
    ),
    fields.KeptFor: Kind(
        "duration: a number with ms, s, m, h, d or w; 1d to 3650d, whole seconds",
        ("24h", "3650d", "4w", "90000s"),
        ("23h", 30, "3651d", "86400500ms"),
    ),
    fields.Count: Kind("number, 1 or more", (1, 64), (0,)),
    fields.Cron: Kind("cron expression", ("*/5 * * * *", "@daily"), ("5 minutes", "* * *")),
    fields.TimeZone: Kind("time zone by its IANA name", ("UTC", "Europe/Berlin"), ("CEST", "Europe", "+02:00", "")),
    fields.Hour: Kind("hour, 0 to 23", (0, 23), (-1, 24)),
    fields.StartDate: Kind("date, as in `2026-11-01`", ("2026-11-01",), ("1 November", "2026-11", "2026-11-31")),
    fields.Retries: Kind("number, 0 or more", (0, 3), (-1,)),
    fields.TagValue: Kind("text, number, boolean, list or mapping", ("data", 5, {"container_config": {}}), (None,)),
    fields.ChosenTypeText: Kind(
        "`decimal(precision,scale)` with a precision of 1 to 38, `array`, `binary` or `variant`",
        ("decimal(38,10)", "array", "binary", "variant"),
        ("decimal(39,0)", "decimal(2,3)", "text"),
    ),
    fields.TableName: Kind(
        "name or pattern as SQL writes it",
        ("public.orders", 'public."Order Items"', "public.*", '"Weird.Name".*', '*."Order"?'),
        ("", "a.b.c", "a.b.*", "public.[ab]*"),
    ),
    fields.LakePath: Kind(
        "folder or URI", ("lake", "/data/lake/shop", "s3a://bucket/shop"), ("", "s3:bucket", "s3a://b/100%")
    ),
    fields.CatalogTemplate: Kind(
        "two or three names with dots between them; `{schema}` and `{table}` stand for the source's",
        ("shop_{schema}.{table}", "main.{schema}.{table}"),
        ("{table}", "shop.orders", "shop.{name}.{table}", "shop..{table}", "`shop`.{table}"),
    ),
    fields.Endpoint: Kind(
        "URL with `http://` or `https://`",
        ("http://127.0.0.1:9000", "https://minio.internal"),
        ("minio:9000", "s3://minio", "https://user:word@minio"),
    ),
    fields.SparkValue: Kind("text, number or boolean", ("4g", 8, 0.5, True), ([1],)),
}

# the sections, in the order of the file
BLOCKS: Mapping[str, type[BaseModel]] = {
    "The pipeline": models.PipelineModel,
    "`source`": source_model.SourceModel,
    "`source.messages`": source_model.MessagesModel,
    "`lake`": models.LakeModel,
    "`storage` of `lake`": models.StorageModel,
    "`windows`": models.WindowsModel,
    "`snapshot`": models.SnapshotModel,
    "`retention`": models.RetentionModel,
    "`health`": health_model.HealthModel,
    "A size threshold of `health`": health_model.SizeThresholdModel,
    "A time threshold of `health`": health_model.TimeThresholdModel,
    "`defaults`": TableDefaultsModel,
    "An entry of `tables`": TableModel,
    "`columns` of a table": ColumnsModel,
    "`on_schema_change`": SchemaPolicyModel,
    "`adopt` of a table": AdoptModel,
    "`layout` of a table": LayoutModel,
    "`spark`": models.SparkModel,
    "`merge`": models.MergeModel,
    "`automation`": AutomationModel,
    "`time_partitions`": TimePartitionsModel,
    "`daily` of `time_partitions`": DailyModel,
    "`hourly` of `time_partitions`": HourlyModel,
    "`op`": OpModel,
    "`retry_policy` of `op`": RetryPolicyModel,
}

# the pages that say more
MORE: Mapping[tuple[type[BaseModel], str], str] = {
    (models.PipelineModel, "on_rewrite"): "schema-changes.md",
    (models.PipelineModel, "snapshot"): "sizing.md#a-first-snapshot-of-a-terabyte",
    (models.PipelineModel, "on_schema_change"): "schema-changes.md#stop-at-a-change",
    (TableModel, "on_schema_change"): "schema-changes.md#stop-at-a-change",
    (models.PipelineModel, "on_unrepresentable"): "types.md#values-without-a-counterpart",
    (source_model.SourceModel, "publication"): "publications.md",
    (source_model.SourceModel, "plugin"): "operations.md#how-the-slot-is-read",
    (source_model.SourceModel, "streaming"): "operations.md#how-the-slot-is-read",
    (source_model.SourceModel, "adopt_slot"): "operations.md#how-the-slot-is-read",
    (source_model.SourceModel, "key_prefix"): "dagster.md",
    (source_model.SourceModel, "messages"): "protocol.md",
    (models.LakeModel, "storage"): "object-stores.md#who-asks-the-store",
    (models.LakeModel, "tables"): "downstream.md#folders",
    (models.RetentionModel, "change_log"): "operations.md#what-grows",
    (models.RetentionModel, "cuts"): "consistent_cuts.md",
    (models.PipelineModel, "health"): "monitoring.md#thresholds",
    (TableModel, "mode"): "modes.md",
    (TableModel, "modes"): "modes.md#several-modes-at-once-modes",
    (TableModel, "columns"): "publications.md#columns-of-a-table",
    (TableModel, "key"): "operations.md#tables-without-a-key",
    (TableModel, "mask"): "masking.md",
    (TableModel, "types"): "types.md#another-type-for-a-column",
    (TableModel, "on_unrepresentable"): "types.md#values-without-a-counterpart",
    (TableModel, "translation"): "dagster.md#customise-it",
    (models.SparkModel, "remote"): "dagster.md#without-a-jvm-in-each-run",
    (models.SparkModel, "resource"): "dagster.md#customise-it",
    (models.PipelineModel, "translation"): "dagster.md#customise-it",
    (models.PipelineModel, "automation"): "dagster.md#what-starts-the-runs",
    (models.PipelineModel, "time_partitions"): "downstream.md#days-and-hours",
    (TimePartitionsModel, "when_a_table_stops"): "downstream.md#days-and-hours",
    (models.PipelineModel, "op"): "dagster.md#customise-it",
    (models.MergeModel, "engine"): "operations.md#without-spark",
}

_HEAD = """\
# Configuration

A pipeline is one YAML file. The command reads it (`--config FILE`), and so does Dagster (`defs/shop/defs.yaml`). This
page lists every field. It is generated from the code that checks the file.

```yaml
type: cdc_assets.PostgresCdcComponent
attributes:
  name: shop
  source: {dsn: "{{ env.SHOP_DSN }}"}
  lake: {path: /data/lake/shop}
  tables:
    - public.orders                       # a table may be just its name
    - name: public.customers              # or a mapping
      mode: history
      mask: {email: sha256}
  merge: {engine: auto}
```

Many tables:

```
defaults: {mode: history}               # of each table whose entry has no mode
exclude: ["public.audit_*"]
tables:
  - "public.*"                          # also the tables that are created later
  - {name: public.orders, mode: mirror}
```

- In a pattern, `*` stands for any characters of the schema or of the table, and `?` for one. Capital letters need
  quotes, as in SQL; inside quotes `*` and `?` stand for themselves: `"Weird.Name".*`, `public."Order"*`.
- The last entry that matches a table and names a field decides, whether it is a name or a pattern, then `defaults`. A
  field is replaced as a whole: `mask: {phone: sha256}` in an entry leaves out the columns of an earlier `mask`.
- A pattern is looked up in the database, at each `sync`, among all ordinary and partitioned tables (no partitions)
  in schemas that the role may use. In a publication of your own, and without `tables`, it is looked up among the tables
  that this publishes. A new table that matches joins our publication and gets a snapshot. One that no longer matches
  (it was dropped or renamed) is no longer replicated, and its Delta table is kept.
- A table that matches and cannot be replicated (it has no key, or another owner) is an error of this table alone, until
  you `exclude` it. So is one without a column that `mask`, `columns`, `key`, `types` or `on_unrepresentable` names:
  no column that you wanted to mask comes unmasked because it has another name there.
- `exclude` always wins; a table that `tables` names and `exclude` leaves out is refused. A pattern that matches none
  is a warning of `postgres-cdc doctor`. If nothing matches at all, `sync` fails.
- Dagster looks patterns up when it would look up missing `tables`: `dg utils refresh-defs-state`.

Everywhere:

- `{{ env.NAME }}` is replaced by an environment variable. A variable that is not set is an error.
- The command also sets the variables of the project's `.env`, as `dg` does, except those that are set already. It takes
  the nearest file from the folder of the YAML file up to the root of the project, which has a `pyproject.toml` or
  `dg.toml`; outside a project only that in the folder itself.
- Fields that are not listed here are refused.
- Names of columns are those of the catalogue, without quotes.
- An invalid field is reported in one line, with the file, the line and what is allowed, and with a hint that shows a
  correct form. Nothing is touched then.

Exit codes of the command: 0 done, 1 failed, 2 wrong usage or configuration.
"""


def page() -> str:
    """The whole text."""
    return "\n".join([_HEAD, *(_section(title, model) for title, model in BLOCKS.items())])


def _section(title: str, model: type[BaseModel]) -> str:
    rows = [_row(model, name, hint) for name, hint in documented(model)]
    about = _capital(" ".join((model.__doc__ or "").replace("``", "`").split()))
    return "\n".join(
        [
            f"## {title}",
            "",
            about,
            "",
            "| field | type | default | meaning | example |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def documented(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    """The fields, with their types as the source code has them."""
    hints = get_type_hints(model, include_extras=True)
    yield from ((name, hints[name]) for name in model.model_fields)


def _row(model: type[BaseModel], name: str, hint: Any) -> str:
    field = model.model_fields[name]
    meaning, default = (_with_code(text, hint) for text in _told(field))
    if (model, name) in MORE:
        meaning = f"{meaning} [More]({MORE[model, name]})"
    example = f"`{in_yaml(field.examples[0])}`" if field.examples else ""
    cells = (f"`{name}`", type_in_words(hint), default, meaning, example)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |".replace("|  |", "| |")


def _with_code(text: str, hint: Any) -> str:
    """Names in it as code: the values that the field may have, settings, functions, variables, commands."""
    values = [re.escape(value) for value in _literals(hint) if isinstance(value, str)]
    names = (
        r'"null"',
        *values,
        r"[a-z]+\.[a-z.]+[a-z]",
        r"\w+_\w+",
        r"local\[\*\]",
        r"decimal\(p,s\)",
        "postgres-cdc [a-z]+",
    )
    return re.sub(rf"(?<![\w`.])(?:{'|'.join(names)})(?![\w`])", r"`\g<0>`", text)


def _literals(hint: Any) -> Sequence[object]:
    parts = get_args(hint)
    return parts if get_origin(hint) is Literal else [value for part in parts for value in _literals(part)]


def _told(field: FieldInfo) -> tuple[str, str]:
    """The meaning, and the default: of one that is nothing, what the description says of it."""
    meaning, _, default = (field.description or "").partition(" Default: ")
    if field.is_required():
        return meaning, "required"
    if default:
        return meaning, default.removesuffix(".")
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) and value == type(value)():
        return meaning, "see below"
    if value in (None, (), {}):
        return meaning, "none"
    return meaning, f"`{value if isinstance(value, str) else _default_in_yaml(value, field)}`"


def _default_in_yaml(value: Any, field: FieldInfo) -> str:
    """As somebody would write it, with a unit."""
    if isinstance(value, BaseModel):
        return in_yaml({name: _with_unit(getattr(value, name), hint) for name, hint in documented(type(value))})
    hint = next((kind for kind in (fields.Size, fields.KeptFor, fields.Seconds) if _is_of(field, kind)), None)
    return in_yaml(_with_unit(value, hint))


def _is_of(field: FieldInfo, kind: Any) -> bool:
    return set(kind.__metadata__) <= set(field.metadata)


def _with_unit(value: Any, hint: Any) -> Any:
    if value is None:
        return None
    parts = (hint, *get_args(hint))
    if fields.Size in parts:
        return size_text(value)
    return duration_text(timedelta(seconds=value)) if {fields.KeptFor, fields.Seconds} & set(parts) else value


def in_yaml(value: object) -> str:
    """In one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=sys.maxsize, sort_keys=False)
    return text.removesuffix("...\n").strip()


def type_in_words(hint: Any) -> str:
    """What a reader may write."""
    if hint in KINDS:
        return KINDS[hint].words
    if hint == fields.OrNull:
        return '`error`, `"null"` or `clamp`'
    if (origin := get_origin(hint)) in (Union, UnionType):
        return ", or ".join(type_in_words(part) for part in get_args(hint) if part is not type(None))
    if origin is Literal:
        return _one_of(get_args(hint))
    if origin is dict:
        return f"mapping of names to {type_in_words(get_args(hint)[1])}"
    if hasattr(hint, "__metadata__"):  # Annotated, by what only checks
        return type_in_words(get_args(hint)[0])
    if origin is not None:  # Sequence, tuple
        return f"list of: {type_in_words(get_args(hint)[0])}"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        link = f"[mapping](#{_anchor(_title(hint))})"
        words = {TableModel: "name or pattern, or ", AutomationModel: "`sensor`, `schedule`, `none`, or "}
        return f"{words.get(hint, '')}{link}"
    return {bool: "`true` or `false`", str: "text", Any: "mapping", SecretStr: "text"}[hint]


def _one_of(values: Sequence[object]) -> str:
    *first, last = (f"`{value}`" for value in values)
    return f"{', '.join(first)} or {last}" if first else last


def _title(model: type[BaseModel]) -> str:
    return next(title for title, listed in BLOCKS.items() if listed is model)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
