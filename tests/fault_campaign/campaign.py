"""Run after run, each with a fault; now and then, and in the end, a clean sync, and lake and source row by row."""

from __future__ import annotations

import random
import shutil
import sys
import time
from pathlib import Path

from spark_jobs.change_log.log import ChangeLog
from tests.fault_campaign.checks import check
from tests.fault_campaign.client import DIFFERENCE
from tests.fault_campaign.complaints import foreign_tracebacks, told, unclear
from tests.fault_campaign.fault_run import carry_out, pipeline_of_run
from tests.fault_campaign.figures import Figures
from tests.fault_campaign.load import resolve_all
from tests.fault_campaign.order import Order, Verb
from tests.fault_campaign.plan import Kind, Plan, Session, plans
from tests.fault_campaign.world import World, world
from tests.spark.commit_chain import commits_after_death, our_commits

_COMPARED_EVERY = 50
_COMPARISON_SECONDS = 600
# a killed driver's JVM may go on; all else that strikes a run ends, or lets it come to its end
_LEAVE_ORPHANS = ("driver killed",)


def run_campaign(folder: Path, jars: Path, runs: int, seed: int, only: tuple[Kind, ...] = ()) -> Figures:
    """``only``: faults of these kinds alone."""
    started, figures = time.monotonic(), Figures(seed)
    deaths: dict[str, float] = {}
    with world(folder, jars) as place:
        _compare(place, figures, "first")
        windows = 0
        for plan in plans(runs, seed, only):
            ran = carry_out(place, plan)
            if plan.kind in _LEAVE_ORPHANS:
                deaths[plan.run] = ran.struck_at
            figures.count(plan, ran)
            if plan.verb == "prepare":
                _prepare_again(place, plan, figures)
            windows, problems = check(place.database, place.pipeline, windows)
            figures.differ(*(f"{plan}: {each}" for each in problems))
            _report(plan, figures, time.monotonic() - started)
            if plan.number % _COMPARED_EVERY == 0 and plan.number != runs:
                _compare(place, figures, f"after-{plan.number}")
        _compare(place, figures, "last")
        _count(place, figures, deaths)
    figures.seconds = time.monotonic() - started
    return figures


def _compare(place: World, figures: Figures, run: str) -> None:
    """A clean sync must bring the lake to the source."""
    resolve_all(place.database)
    lines = _done(place, "local", Order("compare", run, place.pipeline, place.database, place.names), figures)
    figures.differ(*(f"{run}: {line.removeprefix(DIFFERENCE)}" for line in lines if line.startswith(DIFFERENCE)))
    figures.comparisons += 1


def _prepare_again(place: World, plan: Plan, figures: Figures) -> None:
    """What a killed ``prepare`` has begun the next one completes, whatever of it was there."""
    resolve_all(place.database)
    rng = random.Random(f"{plan.seed}-again")  # noqa: S311
    pipeline = pipeline_of_run(place, plan, rng)
    verbs: tuple[Verb, ...] = ("prepare", "capture")
    for verb in verbs:
        _done(place, "none", Order(verb, f"{plan.run}-again", pipeline, place.database), figures)
        place.database.execute("UPDATE changed SET n = n WHERE id = (SELECT min(id) FROM changed)")
    ordinal, problems = check(place.database, pipeline, 0)
    figures.differ(*(f"{plan}: {each}" for each in problems))
    if ordinal < 1:
        figures.differ(f"{plan}: prepared again, it landed nothing")
    slot = pipeline.source.slot
    place.database.execute(f"SELECT pg_drop_replication_slot('{slot}')", f"DROP PUBLICATION {slot}")
    shutil.rmtree(pipeline.lake.path)


def _done(place: World, session: Session, order: Order, figures: Figures) -> list[str]:
    """What the client said of an order that nothing strikes."""
    client = place.clients.of(session)
    client.tell(str(order.written(place.folder)))
    deadline = time.monotonic() + _COMPARISON_SECONDS
    while client.at_work:
        if time.monotonic() > deadline:
            client.kill()
        time.sleep(0.02)
    if client.ended:
        figures.differ(f"{order.run}: the client did not come to the end of {order.verb}")
    lines = place.clients.errors.read_text().splitlines()
    figures.differ(*(line for line in lines if line.startswith(f"told: {order.run}: ")))
    return client.said


def _count(place: World, figures: Figures, deaths: dict[str, float]) -> None:
    figures.windows = len(ChangeLog(place.pipeline.lake.change_log).markers())
    for name in place.names:
        commits = our_commits(place.pipeline.lake.table(name))
        figures.commits += len(commits)
        figures.orphans_commits += commits_after_death(commits, deaths)
    errors = place.clients.errors
    figures.told, figures.unclear = told(errors), unclear(errors)
    figures.foreign_tracebacks = foreign_tracebacks(errors)


def _report(plan: Plan, figures: Figures, seconds: float) -> None:
    """One line a run, to follow a long campaign by."""
    sys.stderr.write(
        f"{seconds:6.0f} s {plan.number:4} {plan.kind:22} {plan.verb}, {plan.stage}: struck"
        f" {figures.struck.total()} of {figures.runs.total()}, differences {len(figures.differences)}\n"
    )
    sys.stderr.flush()
