"""The Dagster component, and the command beside it.

The component is imported on first use: the command and every code location of the environment import this package, and
should not have to load Dagster, still less Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_assets.component import PostgresCdcComponent

__all__ = ["PostgresCdcComponent"]


def __getattr__(name: str) -> object:
    if name == "PostgresCdcComponent":
        from cdc_assets.component import PostgresCdcComponent

        return PostgresCdcComponent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # Dagster's registry lists a package's components by dir()
    return [*globals(), "PostgresCdcComponent"]
