"""What a campaign has seen, in figures that can be compared from one to the next."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

from tests.fault_campaign.fault_run import Ran
from tests.fault_campaign.plan import KINDS, Kind, Plan


@dataclass
class Figures:
    """``struck``: runs whose fault met a process at work; the others count for nothing. All is well if there are no
    ``differences`` and nothing is ``unclear``."""

    seed: int
    runs: Counter[Kind] = field(default_factory=Counter)
    struck: Counter[Kind] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    transactions: int = 0
    blocked: int = 0
    lost: int = 0
    windows: int = 0
    commits: int = 0
    orphans_commits: int = 0
    comparisons: int = 0
    seconds: float = 0
    foreign_tracebacks: int = 0
    told: Counter[str] = field(default_factory=Counter)
    unclear: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def count(self, plan: Plan, ran: Ran) -> None:
        self.runs[plan.kind] += 1
        if ran.struck.at_work:
            self.struck[plan.kind] += 1
            self.stages[f"{plan.verb}, {plan.stage if ran.struck.at_stage else 'elsewhere'}"] += 1
        self.transactions += sum(part.done for part in ran.load)
        self.blocked += sum(part.blocked for part in ran.load)
        self.lost += sum(part.lost for part in ran.load)
        if ran.hung:
            self.differ(f"{plan}: it did not come to an end, and was killed")

    def differ(self, *differences: str) -> None:
        """Shown at once: a campaign that is stopped must not keep what it found to itself."""
        self.differences += differences
        sys.stderr.writelines(f"  difference: {each}\n" for each in differences)

    @property
    def faultless(self) -> bool:
        return not self.differences and not self.unclear

    def __str__(self) -> str:
        runs = self.runs.total()
        return "\n".join(
            [
                f"seed {self.seed}: {runs} runs in {self.seconds:.0f} s, {self.seconds / max(runs, 1):.1f} s each",
                "struck while at work, of so many runs:",
                *(f"  {kind:22}{self.struck[kind]:4} of {self.runs[kind]}" for kind in KINDS if self.runs[kind]),
                "at which stage:",
                *(f"  {stage:26}{count:4}" for stage, count in sorted(self.stages.items())),
                f"transactions {self.transactions}, {self.blocked} gave way to a lock, {self.lost} lost in a fall",
                f"windows {self.windows}, commits to tables {self.commits}, comparisons {self.comparisons}",
                f"commits by a JVM after its driver's death: {self.orphans_commits}",
                f"errors that clients told: {self.told.total()}",
                *(f"  {count:4} × {line}" for line, count in self.told.most_common()),
                f"tracebacks that Spark's own Python printed of a JVM that is gone: {self.foreign_tracebacks}",
                f"errors that are not clear: {len(self.unclear)}",
                *(f"  {line}" for line in self.unclear),
                f"differences: {len(self.differences)}",
                *(f"  {difference}" for difference in self.differences),
            ]
        )
