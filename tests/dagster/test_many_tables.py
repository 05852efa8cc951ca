"""A code location with thousands of tables loads in time that grows with their number, not with its square."""

from __future__ import annotations

import cProfile

from cdc_assets import PostgresCdcComponent


def calls_to_load(tables: int) -> int:
    """How many functions are called while a code location of so many tables loads. Unlike time, it is the same on a
    busy machine."""
    profile = cProfile.Profile()
    profile.enable()
    component = PostgresCdcComponent(
        name="shop",
        source={"dsn": "dbname=shopdb"},  # type: ignore[arg-type]
        lake={"path": "/lake"},  # type: ignore[arg-type]
        tables=[f"public.t{number}" for number in range(tables)],  # type: ignore[misc]
    )
    component.definitions().get_repository_def()
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def test_twice_the_tables_cost_about_twice_the_work() -> None:
    calls_to_load(1)  # what the first load imports
    assert calls_to_load(600) <= 2.5 * calls_to_load(300)
