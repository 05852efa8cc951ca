"""A table with a column of each common type, and the commits of its lake table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark_jobs.configuration import Pipeline
from spark_jobs.qualified_name import QualifiedName

THING_NAME = QualifiedName("public", "thing")
THING = (
    "CREATE TABLE thing (id int PRIMARY KEY, small smallint, large bigint, flag boolean, day date, moment timestamptz,"
    " local timestamp, price numeric(12,2), single real, precise double precision, bytes bytea, text text,"
    ' "odd, name" uuid)'
)
ROWS = """INSERT INTO thing SELECT g, g % 100, g * 10000000000, g % 2 = 0, date '1960-01-01' + g,
  timestamptz '1960-01-01 UTC' + g * interval '1.000001 seconds', timestamp '2024-01-01' + g * interval '1 microsecond',
  g * 1.01, CASE WHEN g % 7 = 0 THEN 'NaN' ELSE g / 3.0 END, g / 3.0, decode(md5(g::text), 'hex'),
  CASE WHEN g % 5 <> 0 THEN repeat(md5((g / 5)::text), 3) || g END, md5(g::text)::uuid FROM generate_series({}, {}) g"""


def commits(pipeline: Pipeline, table: str = "thing") -> list[list[dict[str, Any]]]:
    files = sorted(Path(pipeline.lake.path, "tables", "public", table, "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
