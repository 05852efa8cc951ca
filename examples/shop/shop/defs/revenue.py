"""A gold asset per day, by Polars, with a check of what it was built from."""

import dagster as dg
import polars as pl

import cdc_assets
from shop.days import BY_THREE, DAILY, DAYS, WHEN_COMPLETE, file_of

ITEMS_ADD_UP = dg.AssetCheckSpec(
    "items_add_up", asset="revenue_by_city", description="Each order amounts to the sum of its items."
)


def read(table: cdc_assets.TableAt) -> pl.LazyFrame:
    return pl.scan_delta(table.path, version=table.version, storage_options=table.storage_options)


@dg.asset(
    partitions_def=DAYS,
    deps=[DAILY],
    group_name="gold_by_day",
    kinds={"polars"},
    automation_condition=WHEN_COMPLETE,
    freshness_policy=BY_THREE,
    check_specs=[ITEMS_ADD_UP],
)
def revenue_by_city(context: dg.AssetExecutionContext):
    """What the shop's orders amounted to at the end of the day, for each city."""
    orders, items = (read(cdc_assets.at(context, f"public.{name}")) for name in ("orders", "items"))
    wrong = _orders_with_another_sum(orders, items)
    yield dg.AssetCheckResult(
        check_name=ITEMS_ADD_UP.name,
        passed=wrong.is_empty(),
        metadata={"wrong": wrong.height, "first_of_them": str(wrong["id"].sort().head(20).to_list())},
    )
    revenue = (
        orders.filter(pl.col("status") != "cancelled")
        .group_by("city")
        .agg(pl.len().alias("orders"), pl.col("amount").sum().alias("revenue"))
        .sort("city")
        .collect()
    )
    revenue.write_parquet(file_of("revenue_by_city", context.partition_key))
    yield dg.MaterializeResult(
        metadata={
            "dagster/row_count": revenue.height,
            "orders": int(revenue["orders"].sum()),
            "revenue": float(revenue["revenue"].sum()),
        }
    )


def _orders_with_another_sum(orders: pl.LazyFrame, items: pl.LazyFrame) -> pl.DataFrame:
    """Order and items are written in one transaction, so no cut ever shows one without the others."""
    sums = items.group_by("order_id").agg((pl.col("quantity") * pl.col("price")).sum().alias("sum"))
    joined = orders.join(sums, left_on="id", right_on="order_id", how="left")
    return joined.filter(pl.col("amount") != pl.col("sum").fill_null(0)).select("id").collect()
