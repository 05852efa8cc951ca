"""Keeps pandas out of a command's process, where nothing but pyarrow asks for it.

pyarrow imports pandas, if it is installed, with the first array or scalar that it makes of Python values. That was a
quarter of the CPU time of a command that finds nothing to do. If the import fails, pyarrow works without pandas until
something needs it.
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
    """Import pyarrow, and let its first question, which it does not repeat, find no pandas. Does nothing if pandas is
    imported already.

    pyspark may import pandas later, and both convert from and to it as usual. Only ``pa.array`` of a Series takes it
    for any other sequence.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
