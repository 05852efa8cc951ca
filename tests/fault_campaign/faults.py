"""The faults, each done from outside: a signal, a full disk, a session that the server ends. Nothing is patched."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

import psutil

from tests.fault_campaign.plan import Kind
from tests.fault_campaign.world import World
from tests.fixtures.disks import Disk
from tests.fixtures.standby_process import StandbyProcess

_LONGEST_OUTAGE, _LONGEST_FULL = 3.0, 6.0
_BACKENDS = """
SELECT pid FROM pg_stat_activity
WHERE application_name = 'postgres-cdc' OR backend_type = 'walsender' ORDER BY pid
"""

Strike = Callable[[World, StandbyProcess, random.Random], bool]


def strike(kind: Kind, world: World, client: StandbyProcess, rng: random.Random) -> bool:
    """Returns when the fault has passed: the server is up again, the disk has room. Whether there was anything to
    strike."""
    return _STRIKES[kind](world, client, rng)


def _kill(world: World, client: StandbyProcess, rng: random.Random) -> bool:
    """The JVM that it started is left to itself."""
    working = client.at_work
    client.kill()
    return working


def _kill_child(*words: str) -> Strike:
    """One of its descendants whose command line has one of these words."""

    def kill(world: World, client: StandbyProcess, rng: random.Random) -> bool:
        children = [child for child in psutil.Process(client.process.pid).children(recursive=True) if _is(child, words)]
        if not children:
            return False
        rng.choice(children).kill()
        return True

    return kill


def _is(process: psutil.Process, words: tuple[str, ...]) -> bool:
    try:
        line = " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return False
    return any(word in line for word in words)


def _stop_server(world: World, client: StandbyProcess, rng: random.Random) -> bool:
    world.falling.fall()
    time.sleep(rng.uniform(0, _LONGEST_OUTAGE))
    world.falling.rise()
    return True


def _terminate_backend(world: World, client: StandbyProcess, rng: random.Random) -> bool:
    pids = [row[0] for row in world.database.execute(_BACKENDS)]
    if not pids:
        return False
    return world.database.execute(f"SELECT pg_terminate_backend({rng.choice(pids)})") == [(True,)]


def _fill(disk_of: Callable[[World], Disk]) -> Strike:
    """For a moment, or until the client has given up or managed without."""

    def fill(world: World, client: StandbyProcess, rng: random.Random) -> bool:
        disk, until = disk_of(world), time.monotonic() + rng.uniform(0, _LONGEST_FULL)
        disk.spoil()
        try:
            while client.at_work and time.monotonic() < until:
                time.sleep(0.02)
        finally:
            disk.mend()
        return True

    return fill


def _nothing(world: World, client: StandbyProcess, rng: random.Random) -> bool:
    """Two at once: the other one is the fault."""
    return True


_STRIKES: Mapping[Kind, Strike] = {
    "preparing killed": _kill_child("fault_campaign.client"),
    "capture killed": _kill_child("fault_campaign.client"),
    "driver killed": _kill,
    "JVM killed": _kill_child("SparkSubmit"),
    "server stopped": _stop_server,
    "backend terminated": _terminate_backend,
    "lake full": _fill(lambda world: world.lake_disk),
    "spool full": _fill(lambda world: world.spool_disk),
    "executor killed": _kill_child("CoarseGrainedExecutorBackend"),
    "two at once": _nothing,
}
