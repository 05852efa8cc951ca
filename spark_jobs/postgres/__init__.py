"""The PostgreSQL side. Import the modules themselves: executors load only those that need no psycopg."""

from __future__ import annotations
