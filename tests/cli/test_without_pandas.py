"""pyarrow without pandas, until something needs it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from cdc_assets.cli.without_pandas import keep_pandas_out
keep_pandas_out()
import pyarrow as pa
import pyarrow.dataset
rows = pa.table({"n": pa.array([1, None])})
print("pandas" in sys.modules, rows.column("n").to_numpy())
import pandas
frame = rows.to_pandas()
print("pandas" in sys.modules, pa.Table.from_pandas(frame).column("n").null_count, pa.array(frame["n"]).null_count)
"""


def test_pandas_is_imported_only_by_those_who_need_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False [ 1. nan]", "True 1 1"]
