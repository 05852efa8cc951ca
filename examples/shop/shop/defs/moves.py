"""An asset on changes: not what the orders are at the end of a day, but what happened to them in it."""

import dagster as dg
import duckdb

import cdc_assets
from shop.days import BY_THREE, DAILY, DAYS, WHEN_COMPLETE, file_of
from shop.defs.gold import PIPELINE

MOVES = """
SELECT before.status AS before, after.status AS after, count(*) AS orders
FROM changes WHERE before.status IS DISTINCT FROM after.status
GROUP BY ALL ORDER BY ALL NULLS FIRST
"""


@dg.asset(
    partitions_def=DAYS,
    deps=[DAILY],
    group_name="gold_by_day",
    kinds={"duckdb"},
    automation_condition=WHEN_COMPLETE,
    freshness_policy=BY_THREE,
)
def order_moves(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """How many orders went from which status to which, from every change of the day. ``before`` is there because the
    table has REPLICA IDENTITY FULL."""
    day = context.partition_time_window
    # the log has no changes from before the first day
    start = None if context.partition_key == DAYS.get_first_partition_key() else day.start
    changes = cdc_assets.changes(cdc_assets.load_pipeline(PIPELINE), "public.orders", start, day.end)
    with duckdb.connect() as connection:
        moves = connection.register("changes", changes).sql(MOVES).pl()
    moves.write_parquet(file_of("order_moves", context.partition_key))
    shown = "\n".join(f"| {before or ''} | {after or ''} | {orders} |" for before, after, orders in moves.iter_rows())
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": moves.height,
            "moves": dg.MetadataValue.md(f"| before | after | orders |\n|---|---|---:|\n{shown}"),
        }
    )
