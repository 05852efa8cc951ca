"""Keeps pandas out of a command's process, where nothing but pyarrow asks for it.

pyarrow imports pandas, if it is installed, with the first array or scalar that it makes of Python values: a fifth of the
CPU time of a command that finds nothing to do. If that fails, it goes without, until something needs pandas after all.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def keep_pandas_out() -> None:
    """Import pyarrow, and let it find out that there is no pandas: it asks only once. Others may import pandas later,
    and pyarrow then works with it as usual. Does nothing if pandas is imported already."""
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
