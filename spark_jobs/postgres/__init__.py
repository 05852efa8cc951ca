"""Everything that talks to PostgreSQL. Import the modules directly: executors load only those without psycopg."""

from __future__ import annotations
