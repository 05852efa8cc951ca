"""Connection poolers of managed services, recognised by their address: some of them refuse us only in the middle of a
run, and with a message that names no pooler."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict

from spark_jobs.postgres.password_command import Conninfo


@dataclass(frozen=True)
class Pooler:
    """``address`` matches HOST:PORT. ``instead``: the address of the server itself."""

    name: str
    address: re.Pattern[str]
    instead: str

    @property
    def hint(self) -> str:
        return f"source.dsn names {self.name}, a connection pooler: use {self.instead}"


_POOLERS = (
    Pooler(
        "RDS Proxy",
        re.compile(r"\.proxy-[^.:]+\.[^.:]+\.rds\.amazonaws\.com"),
        "the endpoint of the instance, or the writer endpoint of the cluster",
    ),
    Pooler("Neon's pooler", re.compile(r"-pooler\..*\.neon\.tech:"), "the same host without -pooler"),
    Pooler(
        "Supavisor",
        re.compile(r"\.pooler\.supabase\.com:"),
        "the direct connection, db.PROJECT.supabase.co at port 5432",
    ),
    Pooler("Supabase's pooler", re.compile(r"\.supabase\.co:6543$"), "port 5432"),
    Pooler("Azure's PgBouncer", re.compile(r"\.postgres\.database\.azure\.com:6432$"), "port 5432"),
)


def pooler_of(conninfo: Conninfo) -> Pooler | None:
    """The pooler that a connection string names, by libpq's rules; None if it names none that we know."""
    given = conninfo_to_dict(conninfo if isinstance(conninfo, str) else conninfo.text)
    host = str(given.get("host") or os.environ.get("PGHOST", ""))
    port = str(given.get("port") or os.environ.get("PGPORT") or 5432)
    hosts, ports = host.lower().split(","), port.split(",")
    addresses = [f"{each}:{ports[number if len(ports) > 1 else 0]}" for number, each in enumerate(hosts)]
    poolers = (pooler for address in addresses for pooler in _POOLERS if pooler.address.search(address))
    return next(poolers, None)
