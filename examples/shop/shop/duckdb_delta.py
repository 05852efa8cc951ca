"""A plugin of dbt-duckdb: loads DuckDB's extension for Delta from its wheel, so that nothing else is fetched."""

from pathlib import Path

import duckdb
import duckdb_extension_delta
from dbt.adapters.duckdb.plugins import BasePlugin


class Plugin(BasePlugin):
    def configure_connection(self, conn: duckdb.DuckDBPyConnection) -> None:
        (folder,) = duckdb_extension_delta.__path__
        (extension,) = Path(folder, "extensions", f"v{duckdb.__version__}").glob("delta.duckdb_extension")
        conn.execute(f"LOAD '{extension}'")
