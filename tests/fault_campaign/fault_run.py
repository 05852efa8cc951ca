"""One run: the source changes, a client is at work, a fault strikes it; then slot and log are looked at."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

import psutil
import psycopg

from spark_jobs.configuration import Lake, MergeEngine, Pipeline, SnapshotOptions, WindowLimits
from tests.fault_campaign.faults import strike
from tests.fault_campaign.load import Performed, perform, resolve_all, transactions
from tests.fault_campaign.order import Order
from tests.fault_campaign.plan import Plan, Session
from tests.fault_campaign.signs import Files, Lookout, Stage
from tests.fault_campaign.world import World
from tests.fixtures.standby_process import StandbyProcess

# a stage that this run does not reach: nothing to apply, say
_SIGN_SECONDS = 30
# a snapshot waits for the prepared transactions that were left open, and whoever asks for the published tables for
# those that hold one of them exclusively
_PATIENCE_SECONDS, _LONGEST_RUN = 2, 600
# so many that a fault finds one in work, whatever a run before has left
_WINDOWS_OF_A_RUN, _SMALLEST_WINDOW = 6, 24 << 10
# no table fits into one
_SMALL_CHUNK = 16 << 10
_ENDS_ITS_CLIENT = ("driver killed", "JVM killed")
# their fault strikes a JVM
_NEED_SPARK = ("driver killed", "JVM killed", "executor killed")


@dataclass(frozen=True)
class Struck:
    """``at_work``: the client was, when the fault came; ``at_stage``: it came at the stage that the plan names."""

    at_work: bool
    at_stage: bool


@dataclass(frozen=True)
class Ran:
    """``struck_at``: when the fault had struck, by the clock of ``time.time``. ``hung``: the client did not come to an
    end."""

    struck: Struck
    load: tuple[Performed, Performed]
    struck_at: float
    hung: bool


def carry_out(world: World, plan: Plan) -> Ran:
    rng = random.Random(f"{plan.seed}-load")  # noqa: S311
    work = transactions(plan.number, rng, plan.bulk)
    client = world.clients.of(plan.session)
    first = perform(world.database, work[: len(work) // 2], rng, pauses=False)
    pipeline = pipeline_of_run(world, plan, rng)
    with closing(world.database.connect()) as watching, ThreadPoolExecutor(1, thread_name_prefix="load") as pool:
        look = _lookout(world, pipeline, watching)
        rest = pool.submit(perform, world.database, work[len(work) // 2 :], rng, pauses=True)
        client.tell(_order(world, plan, pipeline))
        struck = _struck(world, plan, client, look)
        struck_at = time.time()
        hung = not _wait_until_done(world, client)
        second = rest.result()
    if plan.kind in _ENDS_ITS_CLIENT or client.ended or hung:
        world.clients.replace(plan.session)
    return Ran(struck, (first, second), struck_at, hung)


def pipeline_of_run(world: World, plan: Plan, rng: random.Random) -> Pipeline:
    """How the slot is read changes from run to run; the lake must not. What is prepared is a pipeline that is new."""
    source = replace(
        world.pipeline.source,
        streaming="on" if plan.kind == "spool full" else rng.choice(("off", "on", "parallel")),
        two_phase=rng.random() < 0.5 and plan.kind != "spool full",
        binary=rng.random() < 0.5,
    )
    changed = replace(
        world.pipeline,
        source=source,
        windows=_windows(world),
        merge_engine=_engine(plan, rng),
        snapshot=SnapshotOptions(chunk_bytes=rng.choice((_SMALL_CHUNK, SnapshotOptions.chunk_bytes))),
    )
    if plan.verb != "prepare":
        return changed
    name = f"prepared_{plan.number}"
    source = replace(source, slot=name, publication=name)
    return replace(changed, name=name, source=source, lake=Lake(f"{world.lake_disk.folder}/{name}"))


def _engine(plan: Plan, rng: random.Random) -> MergeEngine:
    """One writer may be left behind by the other: what a killed driver's JVM still commits must not be there twice."""
    if plan.stage == "staging" or plan.kind in _NEED_SPARK:
        return "spark"
    return rng.choice(("spark", "auto"))


def _lookout(world: World, pipeline: Pipeline, watching: psycopg.Connection[tuple[object, ...]]) -> Lookout:
    def ask(query: str) -> list[tuple[object, ...]]:
        return watching.execute(query).fetchall()

    return Lookout(ask, pipeline.lake, world.spool_disk.folder, world.cuts, Files.of(pipeline.lake))


def _windows(world: World) -> WindowLimits:
    """The last one, which is smaller, is peeked at, the others are read from a copy of the slot."""
    slot = world.pipeline.source.slot
    query = (
        f"SELECT pg_current_wal_flush_lsn() - confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
    )
    size = max(_SMALLEST_WINDOW, int(str(world.database.execute(query)[0][0])) // _WINDOWS_OF_A_RUN)
    return WindowLimits(max_bytes=size, max_per_run=_WINDOWS_OF_A_RUN, peek_bytes=size - 1)


def _order(world: World, plan: Plan, pipeline: Pipeline) -> str:
    rng = random.Random(f"{plan.seed}-names")  # noqa: S311
    names = tuple(rng.sample(world.names, 2))
    return str(Order(plan.verb, plan.run, pipeline, world.database, names).written(world.folder))


def _struck(world: World, plan: Plan, client: StandbyProcess, look: Lookout) -> Struck:
    """Wait for the stage, and a moment more; then strike."""
    rng = random.Random(f"{plan.seed}-fault")  # noqa: S311
    reached = _reached(world, plan.stage, client, look)
    time.sleep(plan.delay)
    if plan.kind == "two at once":
        return Struck(_second_one_beside(world, plan, client, rng), reached)
    at_work = client.at_work
    return Struck(strike(plan.kind, world, client, rng) and at_work, reached)


def _reached(world: World, stage: Stage, client: StandbyProcess, look: Lookout) -> bool:
    """False: the run has passed by it, with nothing to apply, say, or is long in coming to it."""
    begun = time.monotonic()
    patience = begun + _PATIENCE_SECONDS
    while client.at_work and time.monotonic() < begun + _SIGN_SECONDS:
        if look.shows(stage):
            return True
        time.sleep(0.003)
        if time.monotonic() > patience:
            resolve_all(world.database)
            patience += 1
    return False


def _second_one_beside(world: World, plan: Plan, client: StandbyProcess, rng: random.Random) -> bool:
    """A process without a JVM, or one whose executors are elsewhere, does the same work."""
    session: Session = rng.choice(("none", "cluster"))
    second = world.clients.of(session)
    both = client.at_work
    verb = replace(plan, verb="capture") if session == "none" else plan
    second.tell(_order(world, verb, world.pipeline))
    if not _wait_until_done(world, second):
        world.clients.replace(session)
        return False
    return both


def _wait_until_done(world: World, client: StandbyProcess) -> bool:
    """False: it takes too long, and is killed."""
    if _until(lambda: not client.at_work, _PATIENCE_SECONDS):
        return True

    def done() -> bool:
        resolve_all(world.database)
        return not client.at_work

    if _until(done, _LONGEST_RUN, 0.5):
        return True
    _end(client)
    return False


def _end(client: StandbyProcess) -> None:
    """It says first where each of its threads is: into the file of the errors."""
    client.process.send_signal(signal.SIGUSR1)
    time.sleep(1)
    for child in psutil.Process(client.process.pid).children():
        child.kill()
    client.kill()


def _until(happened: Callable[[], bool], seconds: float, pause: float = 0.003) -> bool:
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
