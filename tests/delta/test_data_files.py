"""Which columns of a data file get a dictionary."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.delta.data_files import DataFiles, Layout
from spark_jobs.storage import Location


def test_only_values_that_repeat_get_a_dictionary(tmp_path: Path) -> None:
    count = 1000
    rows = pa.table(
        {
            "id": range(count),
            "state": ["open", "paid"] * (count // 2),
            "text": [f"text {n}" for n in range(count)],
            "nothing": pa.nulls(count, pa.string()),
        }
    )
    files = DataFiles(Location.of(str(tmp_path)), Layout(rows.schema, statistics=("id",), unique=()))
    files.write_all(rows.to_batches())
    (written,) = files.actions
    group = pq.ParquetFile(tmp_path / written.path).metadata.row_group(0)
    made = {group.column(n).path_in_schema for n in range(4) if group.column(n).has_dictionary_page}
    assert "state" in made
    assert made.isdisjoint({"id", "text"})
