"""The component of a pipeline ``shop`` as Dagster loads it from YAML; there is no such server."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
from dagster.components.testing.utils import create_defs_folder_sandbox
from jsonschema import Draft202012Validator

from cdc_assets import PostgresCdcComponent

DSN = "host=db.example user=cdc password=hunter2 dbname=shopdb"
BODY: Mapping[str, Any] = {
    "type": "cdc_assets.PostgresCdcComponent",
    "attributes": {
        "name": "shop",
        "source": {"dsn": "{{ env.SHOP_DSN }}"},
        "lake": {"path": "/data/lake/shop"},
        "tables": ["public.orders", {"name": 'sales."Order Items"'}],
    },
}


def body(**attributes: object) -> dict[str, Any]:
    changed = copy.deepcopy(dict(BODY))
    changed["attributes"].update(attributes)
    return changed


def loaded(contents: dict[str, Any]) -> tuple[PostgresCdcComponent, dg.Definitions]:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=PostgresCdcComponent, defs_yaml_contents=contents)
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, PostgresCdcComponent)
            dg.Definitions.validate_loadable(defs)
            return component, defs


def keys_and_deps(defs: dg.Definitions) -> dict[str, set[str]]:
    return {
        spec.key.to_user_string(): {dep.asset_key.to_user_string() for dep in spec.deps}
        for spec in defs.resolve_all_asset_specs()
    }


ASSETS = {
    "postgres/shopdb/public/orders": set(),
    "postgres/shopdb/sales/Order_Items": set(),
    "shop/change_log": {"postgres/shopdb/public/orders", "postgres/shopdb/sales/Order_Items"},
    "shop/snapshot/public/orders": {"postgres/shopdb/public/orders"},
    "shop/snapshot/sales/Order_Items": {"postgres/shopdb/sales/Order_Items"},
    "shop/maintenance": set(),
    "shop/public/orders": {"shop/change_log", "shop/snapshot/public/orders"},
    "shop/sales/Order_Items": {"shop/change_log", "shop/snapshot/sales/Order_Items"},
}


def chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = error.__cause__ or error.__context__


def checker() -> Draft202012Validator:
    return Draft202012Validator(PostgresCdcComponent.get_model_cls().model_json_schema())  # type: ignore[union-attr]
