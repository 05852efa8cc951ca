"""Which fault strikes which run, when: drawn from the seed, so that a run can be had again by its number."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.fault_campaign.load import Bulk
from tests.fault_campaign.order import Verb
from tests.fault_campaign.signs import Stage

Kind = Literal[
    "preparing killed",
    "capture killed",
    "driver killed",
    "JVM killed",
    "server stopped",
    "backend terminated",
    "lake full",
    "spool full",
    "executor killed",
    "two at once",
]
# none: a process that starts no JVM; cluster: executors are processes of their own
Session = Literal["none", "local", "cluster"]


@dataclass(frozen=True)
class _Case:
    """One verb under a fault; ``stages``: those that it may be struck at. ``longest``: seconds that the fault may wait
    after the stage's sign."""

    verb: Verb
    session: Session
    stages: tuple[Stage, ...]
    longest: float
    weight: int = 1


@dataclass(frozen=True)
class Plan:
    """One run: ``seed`` is of its statements and of what the fault chooses."""

    number: int
    kind: Kind
    verb: Verb
    session: Session
    stage: Stage
    delay: float
    bulk: Bulk
    seed: str

    @property
    def run(self) -> str:
        return f"run-{self.number}"


_CAPTURE = _Case("capture", "none", ("connected", "reading", "reading", "landed"), 0.1, weight=3)
_SYNC = _Case("sync", "local", ("reading", "landed", "writing", "between tables"), 0.5)
_SNAPSHOT = _Case("snapshot", "local", ("snapshot",), 0.2)

# how often each comes: what ends a JVM costs half a minute, what strikes a capture two seconds
_WEIGHTS: Mapping[Kind, int] = {
    "preparing killed": 10,
    "capture killed": 22,
    "driver killed": 11,
    "JVM killed": 4,
    "server stopped": 13,
    "backend terminated": 14,
    "lake full": 7,
    "spool full": 5,
    "executor killed": 5,
    "two at once": 5,
}
KINDS = tuple(_WEIGHTS)
_CASES: Mapping[Kind, tuple[_Case, ...]] = {
    "preparing killed": (_Case("prepare", "none", ("any moment", "connected"), 0.2),),
    "capture killed": (
        _Case("capture", "none", ("any moment",), 0.8),
        _Case("capture", "none", ("reading",), 0.1, weight=2),
        # the slot advances a few milliseconds later
        _Case("capture", "none", ("landed",), 0.02, weight=2),
    ),
    "driver killed": (
        _Case("sync", "local", ("any moment",), 6.0),
        _Case("sync", "local", ("landed", "staging", "between tables", "cut"), 0.05, weight=4),
        _Case("sync", "local", ("writing",), 0.5, weight=2),
        _Case("snapshot", "local", ("snapshot", "writing"), 0.3, weight=2),
    ),
    "JVM killed": (
        _Case("sync", "local", ("staging", "writing", "between tables"), 0.3),
        _Case("snapshot", "local", ("snapshot", "writing"), 0.3),
    ),
    "server stopped": (_CAPTURE, _SYNC, _SNAPSHOT),
    "backend terminated": (_CAPTURE, _SYNC, _SNAPSHOT),
    "lake full": (_CAPTURE, _SYNC, _SNAPSHOT),
    "spool full": (_Case("capture", "none", ("spooling",), 0.0),),
    "executor killed": (
        _Case("sync", "cluster", ("landed", "writing", "between tables"), 0.5, weight=2),
        _Case("snapshot", "cluster", ("snapshot", "writing"), 0.3),
    ),
    "two at once": (
        _Case("sync", "local", ("any moment",), 2.0),
        _Case("snapshot", "local", ("any moment",), 2.0),
    ),
}


def plans(runs: int, seed: int, only: Sequence[Kind] = ()) -> list[Plan]:
    """Where there are enough runs, each kind of fault comes at least once: the first runs hold one of each."""
    rng, chosen = random.Random(seed), only or KINDS  # noqa: S311
    first = rng.sample(chosen, len(chosen))
    drawn = rng.choices(chosen, [_WEIGHTS[kind] for kind in chosen], k=runs)
    kinds = [*first, *drawn][:runs]
    return [_plan(number, kind, f"{seed}-{number}") for number, kind in enumerate(kinds, start=1)]


def _plan(number: int, kind: Kind, seed: str) -> Plan:
    rng = random.Random(seed)  # noqa: S311
    cases = _CASES[kind]
    case = rng.choices(cases, [each.weight for each in cases])[0]
    stage = rng.choice(case.stages)
    bulk: Bulk = "staged" if stage == "staging" else "spooled" if kind == "spool full" else "none"
    return Plan(number, kind, case.verb, case.session, stage, rng.uniform(0, case.longest), bulk, seed)
